//! The text that Prometheus reads: counts, and the state of stream tables from the database. The text does
//! not reuse the state of an earlier request, so a stream table that was dropped is gone from the text, too.

use super::metrics::{
    BUFFER, CONSECUTIVE, LIMIT, Metrics, OLDEST, PENDING, PERIOD, READ, SLOWED, STALENESS, STATUS, TABLES,
};
use super::model::{Health, Snapshot};
use super::reader::View;
use prometheus::{Registry, Result, TextEncoder};
use std::collections::BTreeSet;

/// Returns the text of all metrics.
///
/// # Errors
/// The list of metrics is invalid, which a test would show.
pub(super) fn text(metrics: &Metrics, view: &View) -> Result<String> {
    let now = view.snapshot.as_deref().filter(|_| view.trouble.is_none());
    if let Some(now) = now {
        metrics.keep(&now.tables.iter().map(|t| t.name.as_str()).collect::<BTreeSet<_>>());
    }
    let registry = Registry::new();
    let none: [&str; 0] = [];
    READ.count(&registry)?.with_label_values(&none).set(i64::from(now.is_some()));
    if let Some(now) = now {
        standing(&registry, now)?;
    }
    let mut families = metrics.gather();
    families.extend(registry.gather());
    TextEncoder::new().encode_to_string(&families)
}

fn standing(to: &Registry, now: &Snapshot) -> Result<()> {
    let tables = TABLES.count(to)?;
    for health in Health::ALL {
        let n = now.tables.iter().filter(|t| t.health == health).count();
        tables.with_label_values(&[health.word()]).set(i64::try_from(n).unwrap_or(i64::MAX));
    }
    let (staleness, period, pending) = (STALENESS.gauge(to)?, PERIOD.gauge(to)?, PENDING.count(to)?);
    let slowed = SLOWED.gauge(to)?;
    let (status, consecutive) = (STATUS.count(to)?, CONSECUTIVE.count(to)?);
    for t in &now.tables {
        let name = t.name.as_str();
        if let Some(ms) = t.behind_ms {
            staleness.with_label_values(&[name]).set(ms as f64 / 1e3);
        }
        if let Some(ms) = t.period_ms {
            period.with_label_values(&[name]).set(ms as f64 / 1e3);
        }
        if let Some(ms) = t.slowed_to_ms {
            slowed.with_label_values(&[name]).set(ms as f64 / 1e3);
        }
        if let Some(rows) = t.pending_changes {
            pending.with_label_values(&[name]).set(rows);
        }
        status.with_label_values(&[name, t.status.name()]).set(1);
        consecutive.with_label_values(&[name]).set(i64::from(t.consecutive_errors));
    }
    let (bytes, limit) = (BUFFER.count(to)?, LIMIT.count(to)?);
    for b in &now.buffers {
        bytes.with_label_values(&[&b.source]).set(b.bytes);
        limit.with_label_values(&[&b.source]).set(b.limit_bytes);
    }
    let none: [&str; 0] = [];
    let oldest = now.open.first().map_or(0.0, |o| o.ms as f64 / 1e3);
    OLDEST.gauge(to)?.with_label_values(&none).set(oldest);
    Ok(())
}
