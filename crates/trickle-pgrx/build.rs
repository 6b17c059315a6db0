//! Link flags of the extension.

fn main() {
    // The linker drops functions that only PostgreSQL calls. The flag is set here, and not through
    // cargo-pgrx, so that a plain cargo build and cargo-pgrx have equal flags. Then neither rebuilds the
    // artifacts of the other.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--no-gc-sections");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
