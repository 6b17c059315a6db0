//! Link flags of the extension.

fn main() {
    // The linker would drop what only PostgreSQL calls. Saying so here, and not through cargo-pgrx, keeps the flags of
    // a plain cargo build and of cargo-pgrx equal, so that neither rebuilds what the other made.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--no-gc-sections");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
