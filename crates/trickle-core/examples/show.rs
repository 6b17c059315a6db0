//! Prints what trickle makes of a query.
use trickle_core::catalog::MemoryCatalog;
use trickle_core::{Options, Refresh, compile};
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let catalog = MemoryCatalog::from_ddl(&args[1])?;
    match compile(&args[2], &catalog, &Options::new("public", "st"))? {
        trickle_core::Verdict::FullRefresh(r) => {
            for r in r {
                println!("{r}")
            }
        }
        trickle_core::Verdict::Incremental(st) => {
            println!("{}", st.explain(trickle_core::graph::Format::Text));
            println!("{}", st.explain_delta(None, trickle_core::graph::Format::Text)?);
            for s in st.ddl() {
                println!("{};", trickle_core::sql::print(&s).text);
            }
            let all: std::collections::BTreeSet<_> = st.sources().into_iter().map(|(t, _)| t.id).collect();
            for s in st.refresh(Refresh::Delta, &all)? {
                println!("{};", trickle_core::sql::print(&s).text);
            }
        }
    }
    Ok(())
}
