//! Prints a scenario for people.

use crate::scenario::Scenario;
use std::fmt;

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.options;
        writeln!(
            f,
            "seed {}: {} ms from {}, a unit is {} ms; {} refresher(s), lease {:?}, at most {} at once, {} errors suspend, \
             jitter {}, reload {} ms, lock timeout {} ms, faults {:?}",
            self.seed,
            self.length,
            self.start,
            self.unit,
            self.daemons,
            self.lease,
            o.max_concurrent,
            o.max_consecutive_errors,
            o.jitter,
            self.reload,
            self.lock_timeout,
            self.faults
        )?;
        for t in &self.tables {
            let d = &t.definition;
            let schedule = d.schedule.as_ref().map_or("manual".into(), ToString::to_string);
            let sources: Vec<String> = d.sources.iter().map(ToString::to_string).collect();
            let apart = if d.apart { ", apart" } else { "" };
            writeln!(
                f,
                "  {} reads {}{apart}; {schedule}; delta {:.0} ms + {:.0} per row, full {:.0} ms; from {} ms",
                t.id,
                sources.join(" and "),
                t.costs[0],
                t.costs[2],
                t.costs[1],
                t.created
            )?;
        }
        for (at, event) in &self.events {
            writeln!(f, "  at {at}: {event:?}")?;
        }
        Ok(())
    }
}
