//! The guard of the triggers of an IMMEDIATE stream table: the triggers run only where the sources, their
//! keys and the stream table itself are as they were when the triggers were made.

use super::{Key, Needs};
use crate::cdc::Buffer;
use crate::cdc::fit::{SOURCE, fits, function, list, marked, reason, source, variable, when};
use crate::ident::Ident;
use crate::sql::ast::{Instruction, Scalar};
use crate::table::TableId;

/// Returns the call that gives the reason why a table has lost one of these keys; `None` if no key is of this
/// table.
fn lost_key(table: Scalar, of: TableId, keys: &[Key]) -> Option<Scalar> {
    let keys: Vec<&Key> = keys.iter().filter(|k| k.table == of).collect();
    let columns = |k: &&Key| {
        let numbers: Vec<String> = k.columns.iter().map(i16::to_string).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let indexes = list(keys.iter().map(|k| k.index.to_string()), "oid[]");
    let args = vec![table, indexes, list(keys.iter().map(columns), "text[]")];
    (!keys.is_empty()).then(|| Scalar::Call(function("lost_key"), args))
}

/// Builds the guard of the triggers of a stream table in mode IMMEDIATE, which runs before the triggers read
/// anything. The guard checks three conditions. All sources fit and have their keys. Row security hides no
/// row of the sources from the owner, with whose rights the triggers run. The stream table itself is as it
/// was made. If a condition is false, the stream table is marked and not written, and the writer's statement
/// succeeds.
pub(super) fn all_fit(sources: &[Buffer], needs: &Needs, id: i64) -> Vec<Instruction> {
    let unfit = |s: &Buffer| {
        let of = s.table().id;
        let never_null = needs.never_null.iter().filter(|(table, _)| *table == of).map(|(_, c)| *c);
        let mut positions: Vec<usize> = s.columns().iter().copied().chain(never_null).collect();
        positions.sort_unstable();
        positions.dedup();
        let hidden = Scalar::call("row_security_active", vec![source(s, "oid")]);
        let keyed = lost_key(source(s, "oid"), of, &needs.keys).map(Scalar::is_null);
        let fit = Scalar::and([fits(s, &positions, true), hidden.negated()].into_iter().chain(keyed));
        let lost = Scalar::text("row security applies to the owner of the stream table");
        let lost = match lost_key(variable(SOURCE), of, &needs.keys) {
            Some(key) => key.coalesce(lost),
            None => lost,
        };
        let marked = vec![
            Instruction::Assign(Ident::fixed(SOURCE), source(s, "oid")),
            marked(s, id, reason(s, variable(SOURCE), &positions, true, lost)),
            Instruction::Return,
        ];
        when(fit.negated(), marked, Vec::new())
    };
    let own = needs.own.as_ref().zip(sources.first()).map(|(own, told)| own_fits(own, told, needs, id));
    own.into_iter().chain(sources.iter().filter(|s| s.is_described()).map(unfit)).collect()
}

/// Builds the guard for the stream table itself, which must have the columns and the keys by which its
/// triggers write it. The mark names `told`, one of the sources.
fn own_fits(own: &Buffer, told: &Buffer, needs: &Needs, id: i64) -> Instruction {
    let (of, positions) = (own.table().id, own.columns());
    let keyed = lost_key(source(own, "oid"), of, &needs.keys).map(Scalar::is_null);
    let fit = Scalar::and(std::iter::once(fits(own, positions, false)).chain(keyed));
    let altered = Scalar::text("the stream table itself was altered");
    let lost = match lost_key(variable(SOURCE), of, &needs.keys) {
        Some(key) => key.coalesce(altered),
        None => altered,
    };
    let marked = vec![
        Instruction::Assign(Ident::fixed(SOURCE), source(own, "oid")),
        marked(told, id, reason(own, variable(SOURCE), positions, false, lost)),
        Instruction::Return,
    ];
    when(fit.negated(), marked, Vec::new())
}
