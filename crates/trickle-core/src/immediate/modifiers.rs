//! The check of the type modifiers of the sources' columns, such as the length of a `varchar`.
//!
//! The modifiers of a source's columns can change without firing a trigger. The stream table's columns still
//! have the former modifiers, so the stream table would refuse or round a writer's values.

use crate::cdc::fit;
use crate::sql::ast::{FromItem, Query, Scalar, Select, SelectItem, TableCall};
use crate::sql::{Ident, Qualified};
use crate::table::TableId;

/// A column of a source whose type had a modifier when the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modified {
    /// The source.
    pub table: TableId,
    /// The attribute number of the column.
    pub column: i16,
    /// The modifier, as in `pg_attribute.atttypmod`.
    pub modifier: i32,
}

/// Returns the condition that all these columns still have these modifiers. The condition reads the catalog
/// with the snapshot of the writer's statement, or with a later one.
pub(super) fn are_as_planned(columns: &[Modified]) -> Scalar {
    let (a, w) = (Ident::fixed("a"), Ident::fixed("w"));
    let fields = ["relation", "number", "modifier"].map(Ident::fixed);
    let list = |of: &dyn Fn(&Modified) -> String, ty: &str| TableCall {
        call: Scalar::call("unnest", vec![fit::list(columns.iter().map(of), ty)]),
        definition: Vec::new(),
    };
    let wanted = FromItem::Function {
        calls: vec![
            list(&|c| c.table.to_string(), "oid[]"),
            list(&|c| c.column.to_string(), "int2[]"),
            list(&|c| c.modifier.to_string(), "int4[]"),
        ],
        ordinality: false,
        alias: w.clone(),
        columns: fields.to_vec(),
    };
    let [relation, number, modifier] = fields.map(|field| Scalar::column(&w, &field));
    let of = |name| Scalar::column(&a, &Ident::fixed(name));
    let others = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(Qualified::new("pg_catalog", "pg_attribute"), a.clone()), wanted],
        filter: vec![
            of("attrelid").equals(relation),
            of("attnum").equals(number),
            of("atttypmod").equals(modifier).negated(),
        ],
        ..Select::default()
    };
    Scalar::Exists { query: Box::new(Query::select(others)), negated: true }
}
