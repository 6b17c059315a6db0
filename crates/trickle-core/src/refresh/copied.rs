//! The refresh program of a copy: a table kept equal to a relation whose changes cannot be captured.

use super::plan::{Effect, Program, ReaderView, Template, Windows};
use super::program::Compiled;
use crate::cost::Strategy;
use crate::error::{Error, Result};
use crate::table::TableId;
use std::sync::Arc;

/// The program that reads the whole source once, and writes the difference to the copy. Capture on the copy
/// then gives the changes to readers, as it does for any table. Readers read only the copy, so later changes
/// of the source do not affect them.
#[derive(Debug)]
pub struct Copied {
    program: Compiled,
    check: Option<Template>,
}

impl Copied {
    /// Makes the program of a copy. `program` recomputes the copy's query, which reads the source.
    /// `materialized_view` is the source, if the source is a materialized view. LOCK TABLE does not lock a
    /// materialized view. A REFRESH after the snapshot can therefore replace the view's rows, and the program
    /// would read the new rows. Once the program has read the view, no REFRESH can replace its rows until the
    /// transaction ends. A check after the read finds out whether a REFRESH replaced the rows before the
    /// read. If so, the refresh begins again.
    pub fn new(program: Compiled, materialized_view: Option<TableId>) -> Copied {
        let check = materialized_view.map(|view| {
            let text = format!(
                "DO $check$BEGIN IF pg_relation_filenode({view}) IS DISTINCT FROM \
                 (SELECT relfilenode FROM pg_catalog.pg_class WHERE oid = {view}) THEN \
                 RAISE EXCEPTION USING ERRCODE = 'serialization_failure', \
                 MESSAGE = 'a materialized view was refreshed meanwhile'; END IF; END$check$"
            );
            Template::plain(text, Effect::Nothing)
        });
        Copied { program, check }
    }
}

impl Program for Copied {
    fn strategies(&self) -> &[Strategy] {
        &[Strategy::FullDifference]
    }

    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>> {
        match strategy {
            Strategy::NoData => Ok(Arc::new([])),
            Strategy::FullDifference => {
                let all = self.program.statements(strategy, windows)?;
                Ok(all.iter().chain(&self.check).cloned().collect())
            }
            other => Err(Error::plan(format!("a copy has no way {}", other.name()))),
        }
    }

    fn feed(&self, _: Strategy) -> ReaderView {
        ReaderView::Changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::{Options, compile};

    #[test]
    fn a_copy_reads_its_source_once_and_writes_the_difference() {
        let catalog = MemoryCatalog::from_ddl("CREATE TABLE source (k int, v text)").unwrap();
        let options = Options::new("pgtrickle_changes", "copy_7");
        let table = compile("SELECT k, v FROM source", &catalog, &options).unwrap().incremental().unwrap();
        let copied = Copied::new(Compiled::new(table), Some(TableId(7)));
        let all = copied.statements(Strategy::FullDifference, &Windows::new()).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].text.matches("public.source").count(), 1, "{}", all[0].text);
        assert!(all[1].text.contains("pg_relation_filenode(7)"));
        assert_eq!(copied.strategies(), [Strategy::FullDifference]);
        assert_eq!(copied.feed(Strategy::FullDifference), ReaderView::Changes);
        assert!(copied.statements(Strategy::Full, &Windows::new()).is_err());
    }
}
