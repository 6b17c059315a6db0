//! Ring 4: the engine's plans, and its evaluator, judged by real servers. Every test runs on every PostgreSQL found.

mod smoke;
mod support;
