//! Refuses a call if no stream table can keep its result up to date.

use super::{Lowerer, WITHOUT};
use crate::expr::functions::{Unkept, reads_settings_alone, unkept};
use crate::expr::{Expr, FuncSig, Volatility};
use crate::syntax::Place;
use crate::verdict::{Cause, Reason, ReasonKind};

/// The advice for a result that depends on the transaction's time and that no delta can bring up to date.
const TIMED: &str = "Compare it with columns: a delta keeps conditions on the clock. Else compute it in a view of the stream table, or refresh the table in full.";

impl Lowerer<'_> {
    /// Notes a reason for a function whose result may change while its arguments stay the same.
    pub(super) fn check_volatility(&mut self, sig: &FuncSig, e: &impl Place) {
        match sig.volatility {
            Volatility::Volatile => {
                let help =
                    "Mark the function IMMUTABLE if it is, or compute the value where the row is written.";
                self.volatile(&sig.name, e, help);
            }
            Volatility::Stable if reads_settings_alone(sig) => {}
            Volatility::Stable if sig.is_operator() => {
                let construct = format!("the stable operator {}", sig.name);
                self.because(ReasonKind::NotYet, Cause::Surroundings, e, construct, WITHOUT);
            }
            Volatility::Stable => self.stable(&sig.name, e),
            Volatility::Immutable => {}
        }
    }

    fn volatile(&mut self, name: &str, e: &impl Place, help: &str) {
        let construct = format!("the volatile function {name}()");
        self.because(ReasonKind::Never, Cause::Volatile, e, construct, help);
    }

    fn stable(&mut self, name: &str, e: &impl Place) {
        let construct = format!("the stable function {name}()");
        self.because(ReasonKind::NotYet, Cause::Surroundings, e, construct, WITHOUT);
    }

    /// Replaces a call of a function that returns the transaction's time, such as `now()`, by the time of the
    /// refresh. Stores a reason, which is reported if no delta can bring this use of the time up to date.
    pub(super) fn time(&mut self, name: &str, e: &impl Place) -> Option<Expr> {
        let value = match unkept(name)? {
            Unkept::Time(None) => Expr::now(),
            Unkept::Time(Some(ty)) => Expr::now().cast(ty),
            Unkept::Clock | Unkept::Random | Unkept::SearchPath | Unkept::Surroundings => return None,
        };
        self.timed = Some(self.timed(name, e));
        Some(value)
    }

    fn timed(&self, name: &str, e: &impl Place) -> Reason {
        Reason {
            span: self.span(e),
            kind: ReasonKind::NotYet,
            cause: Cause::Surroundings,
            construct: format!("the stable function {name}()"),
            help: TIMED.to_owned(),
        }
    }

    /// Notes a reason for a built-in function whose result no stream table can keep up to date. Returns
    /// whether `name` is the name of such a function.
    pub(super) fn unkept(&mut self, name: &str, e: &impl Place) -> bool {
        match unkept(name) {
            Some(Unkept::Clock) => {
                self.volatile(name, e, "now() is the time of the refresh, and may be compared with columns.");
            }
            Some(Unkept::Random) => {
                self.volatile(
                    name,
                    e,
                    "Compute the value where the row is written, and store it in a column.",
                );
            }
            Some(Unkept::Time(_)) => {
                let reason = self.timed(name, e);
                self.note(reason);
            }
            Some(Unkept::SearchPath) => {
                let construct = format!("the function {name}()");
                let help = "Write the name of the schema instead.";
                self.because(ReasonKind::Never, Cause::SearchPath, e, construct, help);
            }
            Some(Unkept::Surroundings) => self.stable(name, e),
            None => return false,
        }
        true
    }
}
