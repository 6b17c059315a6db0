//! The order of writers. The control table counts open statements. Waits and errors ensure that a delta is
//! applied only to a state that no other session can still change.

use super::body::{ANEW, ASIDE, AT, FEW, PENDING, not_found, variable, when};
use super::exclusion::Exclusion;
use super::{BUCKETS, Immediate};
use crate::cdc::Buffer;
use crate::error::Result;
use crate::opt;
use crate::sql::ast::{
    ConflictAction, Cte, FromItem, Insert, Instruction, OnConflict, OrderBy, Query, Scalar, Select,
    SelectItem, SetExpr, SpecialCall, Statement, TriggerEvent, Update,
};
use crate::sql::{Ident, Qualified, opaque, render_states};
use crate::table::TableId;
use crate::types::Type;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Immediate<'_> {
    /// Counts a statement at its beginning.
    pub(super) fn begin(&self) -> Vec<Instruction> {
        let c = Ident::fixed("c");
        let column = |name| Scalar::column(&c, &Ident::fixed(name));
        // The first trigger of a statement ignores the flags that an earlier statement left.
        let still = |name| Scalar::and([column(name), column("pending").op(">", Scalar::int4(0))]);
        let set = vec![
            (Ident::fixed("pending"), column("pending").op("+", Scalar::int4(1))),
            (Ident::fixed("aside"), still("aside")),
            (Ident::fixed("anew"), still("anew")),
        ];
        self.count(set)
    }

    /// Waits for other transactions, as [`Self::begin`] does, but counts no statement.
    pub(super) fn lock(&self) -> Vec<Instruction> {
        let (c, pending) = (Ident::fixed("c"), Ident::fixed("pending"));
        self.count(vec![(pending.clone(), Scalar::column(&c, &pending))])
    }

    /// Updates the row of the control table, and reads it. The update waits until all other transactions that
    /// updated this row have ended.
    ///
    /// Each statement of a transaction makes a new version of the row. A transaction-local setting stores the
    /// `ctid` of the last version, so older versions need not be searched. If the stored `ctid` is wrong, the
    /// row is searched for.
    pub(super) fn count(&self, set: Vec<(Ident, Scalar)>) -> Vec<Instruction> {
        let c = Ident::fixed("c");
        let column = |name| Scalar::column(&c, &Ident::fixed(name));
        let setting = Scalar::text(&format!("pgtrickle.immediate_{}", self.id));
        let remembered = Scalar::call("current_setting", vec![setting.clone(), Scalar::bool(true)]);
        let remembered = Scalar::Special(SpecialCall::NullIf, vec![remembered, Scalar::text("")])
            .cast(Type::Other(Arc::new(opaque("tid"))));
        let returned = [column("ctid").cast(Type::Text), column("pending"), column("aside"), column("anew")];
        let update = |at: Option<Scalar>| {
            let statement = Statement::Update(Update {
                ctes: Vec::new(),
                table: self.control(),
                alias: Some(c.clone()),
                set: set.clone(),
                from: Vec::new(),
                // All roles can change the setting, so it may hold the `ctid` of another row.
                filter: at.into_iter().chain([column("bucket").equals(self.counter())]).collect(),
                returning: returned
                    .iter()
                    .map(|expr| SelectItem { expr: expr.clone(), name: None })
                    .collect(),
            });
            Instruction::Fetch(statement, [AT, PENDING, ASIDE, ANEW].map(Ident::fixed).into())
        };
        let remember = Scalar::call("set_config", vec![setting, variable(AT), Scalar::bool(true)]);
        vec![
            update(Some(column("ctid").equals(remembered))),
            when(
                not_found(),
                vec![update(None), when(not_found(), vec![self.too_old()], Vec::new())],
                Vec::new(),
            ),
            Instruction::Assign(Ident::fixed(AT), remember),
        ]
    }

    /// Returns the number of the row that counts the statements: the only row, or the row of the transaction.
    pub(super) fn counter(&self) -> Scalar {
        if self.exclusion == Exclusion::All {
            return Scalar::int4(0);
        }
        let number = current_xid().cast(Type::Text).cast(Type::Int8).op("%", Scalar::int8(BUCKETS));
        number.op("+", Scalar::int8(BUCKETS)).cast(Type::Int4)
    }

    /// Raises the error for a stream table that was computed after the writer's snapshot was taken.
    pub(super) fn too_old(&self) -> Instruction {
        Instruction::Raise {
            sqlstate: "40001",
            message: format!(
                "could not serialize access: stream table {} was computed after this transaction's snapshot",
                self.table.layout().result.name
            ),
            hint: "Retry the transaction.".to_owned(),
        }
    }

    /// Whether all statements that were counted at their beginning have ended.
    pub(super) fn is_last(&self) -> Scalar {
        variable(PENDING).equals(Scalar::int4(0))
    }

    pub(super) fn count_down(&self, truncated: bool) -> Vec<Instruction> {
        let column = |name| Scalar::column(&Ident::fixed("c"), &Ident::fixed(name));
        let others = column("pending").op(">", Scalar::int4(1));
        let mut set = vec![
            (Ident::fixed("pending"), column("pending").op("-", Scalar::int4(1))),
            (Ident::fixed("aside"), Scalar::or([column("aside"), others])),
        ];
        if truncated {
            set.push((Ident::fixed("anew"), Scalar::bool(true)));
        }
        self.count(set)
    }

    /// Refuses a snapshot that was taken before the stream table was computed.
    pub(super) fn check(&self) -> Instruction {
        let c = Ident::fixed("c");
        let rows = Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            from: vec![FromItem::relation(self.control(), c)],
            ..Select::default()
        };
        let none = Scalar::Exists { query: Box::new(Query::select(rows)), negated: true };
        when(none, vec![self.too_old()], Vec::new())
    }

    /// Raises an error if two rows with the same key are visible in the snapshot. Another transaction deleted
    /// the first row after the snapshot; this statement wrote the second row. The unique index allows both
    /// rows, and a lookup by key may find either.
    pub(super) fn check_versions(&self, source: &Buffer, event: TriggerEvent) -> Result<Instruction> {
        let (d, s) = (Ident::fixed("d"), Ident::fixed("s"));
        let rows = self.transition(source, event);
        let key = self.table.affected_key().unwrap_or_default();
        let names = key.iter().filter_map(|c| Some((source.column(*c)?.0, source.table().columns.get(*c)?)));
        let same = names
            .map(|(here, c)| Scalar::column(&s, &Ident::from(&c.name)).equals(Scalar::column(&d, &here)));
        let versions = Select {
            items: vec![SelectItem { expr: Scalar::aggregate("count", vec![]), name: None }],
            from: vec![FromItem::relation(source.table_name().clone(), s.clone())],
            filter: same.collect(),
            ..Select::default()
        };
        let several = Scalar::Subquery(Box::new(Query::select(versions))).op(">", Scalar::int8(1));
        let mut found = Query::select(Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            from: vec![FromItem::relation(Qualified::bare(rows.name.clone()), d)],
            filter: vec![several],
            ..Select::default()
        });
        found.ctes = vec![rows];
        let found = Scalar::Exists { query: Box::new(found), negated: false };
        let level = Scalar::call("current_setting", vec![Scalar::text("transaction_isolation")]);
        let old = level.op("<>", Scalar::text("read committed"));
        // In one condition, PostgreSQL might evaluate the second part first.
        Ok(when(old, vec![when(found, vec![self.too_old()], Vec::new())], Vec::new()))
    }

    /// Makes transactions with older snapshots fail, for every group that they change.
    pub(super) fn mark(&self) -> Option<Instruction> {
        let groups = matches!(self.exclusion, Exclusion::Groups { .. });
        let bucket = Scalar::Column { table: None, name: Ident::fixed("bucket") };
        groups.then(|| {
            Instruction::Run(Statement::Update(Update {
                ctes: Vec::new(),
                table: self.control(),
                alias: None,
                set: vec![(Ident::fixed("xid"), current_xid())],
                from: Vec::new(),
                filter: vec![bucket.op("<", Scalar::int8(BUCKETS))],
                returning: Vec::new(),
            }))
        })
    }

    /// Waits for all transactions that changed a group in one of these buckets, and makes later transactions
    /// wait. Buckets are locked in order, so two statements cannot wait for each other. Writing the bucket's
    /// row makes transactions with older snapshots fail (PostgreSQL 13.2.2). One write per transaction is
    /// enough. Later statements only lock the row; ON CONFLICT locks it whether its condition is true or
    /// false.
    pub(super) fn lock_groups(&self, id: TableId, transition: Option<Cte>) -> Result<Option<Instruction>> {
        let Exclusion::Groups { of, keys } = &self.exclusion else { return Ok(None) };
        let from = transition.as_ref().map_or_else(|| self.aside(id), |t| Qualified::bare(t.name.clone()));
        let mut graph = self.table.graph().clone();
        let mut differ = self.table.differ(&mut graph, &BTreeSet::from([id]));
        let change = differ.delta(*of)?;
        let touched = differ.keys(change, keys)?;
        let touched = opt::Optimizer::default().optimize_one(&mut graph, touched)?;
        let given = self.given(BTreeMap::from([(id, from)]), Some(FEW));
        let (ctes, named) = render_states(&graph, &[touched], &given, self.table.profile())?;
        let Some(named) = named.first() else {
            return Err(crate::error::Error::internal("a root was not rendered"));
        };
        let (k, bucket, xid) = (Ident::fixed("k"), Ident::fixed("bucket"), Ident::fixed("xid"));
        let values = named.columns.iter().map(|c| Scalar::column(&k, c)).collect();
        let hash = Scalar::call("hash_record_extended", vec![Scalar::Row(values), Scalar::int8(0)]);
        let number = hash.op("&", Scalar::int8(BUCKETS - 1)).cast(Type::Int4);
        let found = Select {
            distinct: true,
            items: vec![
                SelectItem { expr: number, name: None },
                SelectItem { expr: current_xid(), name: None },
            ],
            from: vec![FromItem::relation(Qualified::bare(named.relation.clone()), k)],
            ..Select::default()
        };
        let mut found = Query::new(SetExpr::Select(Box::new(found)));
        found.order_by = vec![OrderBy { expr: Scalar::int4(1), descending: false, nulls_first: false }];
        let (c, excluded) = (Ident::fixed("c"), Ident::fixed("excluded"));
        let other = Scalar::column(&c, &xid).op("<>", Scalar::column(&excluded, &xid));
        let update = ConflictAction::Update {
            set: vec![(xid.clone(), Scalar::column(&excluded, &xid))],
            filter: vec![other],
        };
        Ok(Some(Instruction::Run(Statement::Insert(Insert {
            ctes: transition.into_iter().chain(ctes).collect(),
            note: None,
            table: self.control(),
            alias: Some(c),
            columns: vec![bucket.clone(), xid],
            source: found,
            on_conflict: Some(OnConflict { columns: vec![bucket], action: update }),
            returning: Vec::new(),
        }))))
    }
}

fn current_xid() -> Scalar {
    Scalar::call("pg_current_xact_id", vec![])
}
