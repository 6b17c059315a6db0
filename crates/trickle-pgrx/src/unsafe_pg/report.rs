//! Properties of errors that the bindings do not know: codes that are not the server's own, and the place in
//! a statement. Callbacks for the context of an error read and set both properties, since the server calls
//! these callbacks while it assembles the error.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::PgLogLevel;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_void};

// These functions are declared without a guard, since a guard would disturb an error that is being assembled.
unsafe extern "C-unwind" {
    /// Returns the code of the error that is being assembled. The next two functions return the position of
    /// the error, counted from 1: the first in the client's statement, the second in a statement that a
    /// function runs.
    fn geterrcode() -> i32;
    fn geterrposition() -> i32;
    fn getinternalerrposition() -> i32;
    /// Sets the code of the error that is being assembled. The next two functions set a place in a statement,
    /// and the statement.
    fn errcode(code: i32) -> i32;
    fn internalerrposition(position: i32) -> i32;
    fn internalerrquery(query: *const c_char) -> i32;
}

/// The code and the place of an error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CaughtDetails {
    pub(super) code: i32,
    /// Place in characters, from 1; 0 if the error has no place.
    pub(super) position: i32,
}

/// Runs `work`, which can ask for the code and the place of the last error that the server assembled
/// meanwhile. A notice counts as well, if no error came after it.
pub(super) fn listening<T>(work: impl FnOnce(&Cell<CaughtDetails>) -> T) -> T {
    let heard = Cell::new(CaughtDetails::default());
    // SAFETY: the variable is read by the thread that writes it.
    let previous = unsafe { pg_sys::error_context_stack };
    let arg = (&raw const heard).cast_mut().cast::<c_void>();
    let mut here = pg_sys::ErrorContextCallback { previous, callback: Some(hear), arg };
    let _until = Until(previous);
    // SAFETY: the callback is taken off before it goes out of scope, whatever `work` does.
    unsafe { pg_sys::error_context_stack = &raw mut here };
    work(&heard)
}

/// A guard that restores the stack of contexts.
struct Until(*mut pg_sys::ErrorContextCallback);

impl Drop for Until {
    fn drop(&mut self) {
        // SAFETY: the entries that were on the stack before are still there: they belong to callers.
        unsafe { pg_sys::error_context_stack = self.0 };
    }
}

unsafe extern "C-unwind" fn hear(arg: *mut c_void) {
    // SAFETY: the argument is the one that `listening` put there; an error is being assembled.
    unsafe {
        let position = geterrposition().max(getinternalerrposition());
        (*arg.cast::<Cell<CaughtDetails>>()).set(CaughtDetails { code: geterrcode(), position });
    }
}

thread_local! {
    static TELLING: RefCell<Option<RaisedDetails>> = const { RefCell::new(None) };
}

/// The code and the place to give to the next error.
struct RaisedDetails {
    code: Option<i32>,
    place: Option<(CString, i32)>,
}

/// The context of an error that this module raises. The context is a static, so that it outlives the code
/// that raises the error.
static mut OURS: pg_sys::ErrorContextCallback = pg_sys::ErrorContextCallback {
    previous: std::ptr::null_mut(),
    callback: Some(tell),
    arg: std::ptr::null_mut(),
};

/// Raises an error with a code and a place. The code need not be one of the server's own. The place is a
/// position in a query, in characters from 1.
pub(crate) fn raise(report: ErrorReport, code: Option<i32>, place: Option<(&str, usize)>) -> ! {
    let place = place.and_then(|(query, at)| Some((CString::new(query).ok()?, i32::try_from(at).ok()?)));
    TELLING.set(Some(RaisedDetails { code, place }));
    // SAFETY: one error is raised at a time, and code that catches it restores the stack of contexts.
    unsafe {
        OURS.previous = pg_sys::error_context_stack;
        pg_sys::error_context_stack = &raw mut OURS;
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("an error was raised")
}

unsafe extern "C-unwind" fn tell(_: *mut c_void) {
    let Some(told) = TELLING.take() else { return };
    // SAFETY: an error is being assembled; the server copies the text.
    unsafe {
        if let Some(code) = told.code {
            errcode(code);
        }
        if let Some((query, position)) = &told.place {
            internalerrposition(*position);
            internalerrquery(query.as_ptr());
        }
    }
}
