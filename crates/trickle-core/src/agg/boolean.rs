//! The aggregates `bool_and`, `bool_or` and `every`, computed from counts of true and false values.

use super::{Acc, AggCall, Facts, Family, Linear, Upkeep, ValueOf, aggregate, also};
use crate::error::Result;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::types::{Datum, Type};

pub(super) struct Boolean;

fn is_or(sig: &FuncSig) -> bool {
    &*sig.name == "bool_or"
}

impl Family for Boolean {
    fn names(&self) -> &'static [&'static str] {
        &["bool_and", "bool_or", "every"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts::of(ValueOf::Function)
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        (args == [Type::Bool]).then(|| aggregate(name, vec![Type::Bool], Type::Bool, false))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        let Some(arg) = call.args.first() else { return Upkeep::Rescan };
        let present = Acc::count(also(&call.filter, arg.clone().is_not_null()));
        let decisive = if is_or(&call.sig) { arg.clone() } else { arg.clone().negated() };
        Upkeep::Linear(Linear { accs: vec![present, Acc::count(also(&call.filter, decisive))], finish })
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        let mut values = rows.iter().map(|r| &r[0]).filter(|d| !d.is_null()).peekable();
        if values.peek().is_none() {
            return Ok(Datum::Null);
        }
        let or = is_or(&call.sig);
        let found = values.any(|v| *v == Datum::Bool(or));
        Ok(Datum::Bool(found == or))
    }
}

/// Returns NULL for a group that has only NULLs. Otherwise `bool_or` is true if the group has a TRUE, and
/// `bool_and` is true if the group has no FALSE.
fn finish(call: &AggCall, accs: &[Expr]) -> Expr {
    let op = if is_or(&call.sig) { ">" } else { "=" };
    let decided =
        Expr::call(FuncSig::comparison(op, Type::Int8, Type::Int8), vec![accs[1].clone(), Expr::int8(0)]);
    let none = accs[0].clone().equals(Expr::int8(0));
    Expr::new(ExprKind::Case { whens: vec![(none, Expr::null(Type::Bool))], otherwise: decided }, Type::Bool)
}
