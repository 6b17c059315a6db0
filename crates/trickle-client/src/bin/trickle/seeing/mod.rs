//! The state of stream tables as one model, and its views: metrics, a status page.
//!
//! Each view is a function of the model; only [`reader`] asks a database and only [`serve`] speaks HTTP.

mod log;
mod metrics;
pub(crate) mod model;
mod page;
mod picture;
pub(crate) mod reader;
mod scrape;
mod serve;

pub(crate) use log::{Format, start as log_to_stderr, told};
pub(crate) use metrics::Metrics;
pub(crate) use model::bytes;
pub(crate) use serve::{is_host_name, listen};
