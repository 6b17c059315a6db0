//! Prints queries.

use super::Printer;
use crate::ident::Ident;
use crate::sql::ast::{
    Cte, CteBody, FromItem, JoinKind, Query, Scalar, Select, SelectItem, SetExpr, SetOperator, TableCall,
};

impl Printer {
    pub(super) fn query(&mut self, q: &Query) {
        self.ctes(&q.ctes);
        self.set(&q.body);
        if !q.order_by.is_empty() {
            self.newline();
            self.word("ORDER BY");
            self.list(&q.order_by, Self::order);
        }
        if let Some(offset) = &q.offset {
            self.newline();
            self.word("OFFSET ");
            self.count(offset);
        }
        if let Some(limit) = &q.limit {
            self.newline();
            self.word(if q.with_ties { "FETCH FIRST " } else { "LIMIT " });
            self.count(limit);
            self.word(if q.with_ties { " ROWS WITH TIES" } else { "" });
        }
    }

    /// Writes a number of rows, for LIMIT, FETCH and OFFSET. A constant is written without a type, as FETCH
    /// requires.
    fn count(&mut self, n: &Scalar) {
        match n {
            Scalar::Literal(crate::types::Datum::Int(n), _) => self.show(n),
            other => self.scalar(other),
        }
    }

    pub(super) fn ctes(&mut self, ctes: &[Cte]) {
        if ctes.is_empty() {
            return;
        }
        let recursive = ctes.iter().any(|c| matches!(c.body, CteBody::Recursive(_)));
        self.word(if recursive { "WITH RECURSIVE" } else { "WITH" });
        for (i, cte) in ctes.iter().enumerate() {
            self.word(if i == 0 { " " } else { ", " });
            self.ident(&cte.name);
            self.names(&cte.columns);
            self.word(match cte.materialized {
                None => " AS (",
                Some(true) => " AS MATERIALIZED (",
                Some(false) => " AS NOT MATERIALIZED (",
            });
            self.inside(|p| {
                p.newline();
                match &cte.body {
                    CteBody::Query(q) | CteBody::Recursive(q) => p.query(q),
                    CteBody::Insert(s) => p.insert(s),
                    CteBody::Update(s) => p.update(s),
                    CteBody::Delete(s) => p.delete(s),
                    CteBody::Merge(s) => p.merge(s),
                }
            });
            self.newline();
            self.word(")");
        }
        self.newline();
    }

    /// Writes the list ` (a, b)`, or nothing where the list is empty.
    pub(super) fn names(&mut self, names: &[Ident]) {
        if !names.is_empty() {
            self.word(" (");
            self.row(names, Self::ident);
            self.word(")");
        }
    }

    pub(super) fn subquery(&mut self, q: &Query) {
        self.word("(");
        self.inside(|p| {
            p.newline();
            p.query(q);
        });
        self.newline();
        self.word(")");
    }

    fn set(&mut self, s: &SetExpr) {
        match s {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Values(rows) => {
                self.word("VALUES");
                self.list(rows, |p, row| {
                    p.word("(");
                    p.row(row, Self::scalar);
                    p.word(")");
                });
            }
            SetExpr::UnionAll(arms) => {
                for (i, arm) in arms.iter().enumerate() {
                    if i > 0 {
                        self.set_word("UNION ALL");
                    }
                    self.arm(arm);
                }
            }
            SetExpr::SetOp { op, all, left, right } => {
                self.arm(left);
                self.set_word(match (op, all) {
                    (SetOperator::Union, false) => "UNION",
                    (SetOperator::Union, true) => "UNION ALL",
                    (SetOperator::Intersect, false) => "INTERSECT",
                    (SetOperator::Intersect, true) => "INTERSECT ALL",
                    (SetOperator::Except, false) => "EXCEPT",
                    (SetOperator::Except, true) => "EXCEPT ALL",
                });
                self.arm(right);
            }
        }
    }

    fn set_word(&mut self, word: &str) {
        self.newline();
        self.word(word);
        self.newline();
    }

    fn arm(&mut self, s: &SetExpr) {
        match s {
            SetExpr::Select(_) | SetExpr::Values(_) => self.set(s),
            _ => {
                self.word("(");
                self.inside(|p| {
                    p.newline();
                    p.set(s);
                });
                self.newline();
                self.word(")");
            }
        }
    }

    fn select(&mut self, s: &Select) {
        self.word("SELECT");
        if s.distinct {
            self.word(" DISTINCT");
        }
        self.list(&s.items, Self::item);
        if !s.from.is_empty() {
            self.newline();
            self.word("FROM");
            self.list(&s.from, Self::source);
        }
        self.conjuncts("WHERE", &s.filter);
        if !s.group_by.is_empty() {
            self.newline();
            self.word("GROUP BY");
            self.list(&s.group_by, |p, e| match e {
                // In GROUP BY an integer constant is the position of an output column.
                Scalar::Literal(crate::types::Datum::Int(n), crate::types::Type::Int4) => p.show(n),
                other => p.scalar(other),
            });
        }
        self.conjuncts("HAVING", &s.having);
    }

    pub(super) fn conjuncts(&mut self, word: &str, terms: &[Scalar]) {
        let flat = terms.iter().flat_map(|t| match t {
            Scalar::And(inner) => inner.as_slice(),
            other => std::slice::from_ref(other),
        });
        let alone = flat.clone().count() == 1;
        for (i, t) in flat.enumerate() {
            self.newline();
            self.word(if i == 0 { word } else { "  AND" });
            self.word(" ");
            self.inside(|p| p.conjunct(t, alone));
        }
    }

    pub(super) fn item(&mut self, item: &SelectItem) {
        self.scalar(&item.expr);
        let own = match &item.expr {
            Scalar::Column { name, .. } => Some(name),
            _ => None,
        };
        if let Some(name) = item.name.as_ref().filter(|n| Some(*n) != own) {
            self.word(" AS ");
            self.ident(name);
        }
    }

    pub(super) fn source(&mut self, f: &FromItem) {
        match f {
            FromItem::Relation { name, alias } => {
                self.qualified(name);
                if name.name != *alias {
                    self.alias(alias, &[]);
                }
            }
            FromItem::Subquery { query, alias, columns, lateral } => {
                self.word(if *lateral { "LATERAL " } else { "" });
                self.subquery(query);
                self.alias(alias, columns);
            }
            FromItem::Function { calls, ordinality, alias, columns } => {
                self.calls(calls, *ordinality);
                self.alias(alias, columns);
            }
            FromItem::Join { kind, left, right, on } => {
                self.source(left);
                self.newline();
                self.word(match kind {
                    JoinKind::Inner => "JOIN ",
                    JoinKind::Left => "LEFT JOIN ",
                    JoinKind::Full => "FULL JOIN ",
                    JoinKind::Cross => "CROSS JOIN ",
                });
                if matches!(**right, FromItem::Join { .. }) {
                    self.word("(");
                    self.source(right);
                    self.word(")");
                } else {
                    self.source(right);
                }
                if let Some(on) = on {
                    self.word(" ON ");
                    self.scalar(on);
                }
            }
        }
    }

    fn calls(&mut self, calls: &[TableCall], ordinality: bool) {
        match calls {
            [one] if one.definition.is_empty() => self.scalar(&one.call),
            _ => {
                self.word("ROWS FROM (");
                self.row(calls, |p, c| {
                    p.scalar(&c.call);
                    if !c.definition.is_empty() {
                        p.word(" AS (");
                        p.row(&c.definition, |p, (name, ty)| {
                            p.ident(name);
                            p.word(" ");
                            p.show(ty);
                        });
                        p.word(")");
                    }
                });
                self.word(")");
            }
        }
        self.word(if ordinality { " WITH ORDINALITY" } else { "" });
    }

    fn alias(&mut self, alias: &Ident, columns: &[Ident]) {
        self.word(" AS ");
        self.ident(alias);
        self.names(columns);
    }
}
