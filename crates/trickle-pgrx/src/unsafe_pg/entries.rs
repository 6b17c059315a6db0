//! The macro that defines entry points of the extension's processes.

/// Defines entry points of processes, each with the function that does the work of the process. The server
/// finds an entry point by its name in the library. The attribute `no_mangle` counts as unsafe
/// code, since two libraries could define one name. The prefix `pg_trickle_` belongs to this library.
macro_rules! entry_points {
    ($($(#[$about:meta])* $name:ident => $work:path),* $(,)?) => {
        $(
            $(#[$about])*
            #[pgrx::pg_guard]
            #[unsafe(no_mangle)]
            pub(crate) extern "C-unwind" fn $name(argument: pgrx::pg_sys::Datum) {
                $work(argument);
            }
        )*
    };
}

pub(crate) use entry_points;
