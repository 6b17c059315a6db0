//! Prints scalar expressions, with parentheses where precedence requires them (manual, "Operator
//! Precedence").

use super::Printer;
use crate::expr::{FormPiece, IsTest, Subscript, spaced};
use crate::ident::{Ident, Qualified};
use crate::sql::ast::{Aggregate, FrameBound, OrderBy, Over, Param, Scalar, SpecialCall};
use crate::types::Type;
use crate::window::{Exclusion, Units};

/// The tightness with which an expression binds its operands. An operand gets parentheses if it binds less
/// tightly than its position requires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Not,
    Is,
    Comparison,
    Like,
    Operator,
    Sum,
    Product,
    Power,
    Sign,
    Cast,
    Atom,
}

impl Binding {
    /// Returns the least binding that is tighter than `self`.
    fn tighter(self) -> Binding {
        match self {
            Binding::Or => Binding::And,
            Binding::And => Binding::Not,
            Binding::Not => Binding::Is,
            Binding::Is => Binding::Comparison,
            Binding::Comparison => Binding::Like,
            Binding::Like => Binding::Operator,
            Binding::Operator => Binding::Sum,
            Binding::Sum => Binding::Product,
            Binding::Product => Binding::Power,
            Binding::Power => Binding::Sign,
            Binding::Sign => Binding::Cast,
            Binding::Cast | Binding::Atom => Binding::Atom,
        }
    }
}

fn operator_binding(op: &Qualified, arity: usize) -> Binding {
    if op.schema.is_some() {
        return Binding::Operator;
    }
    match (op.name.as_str(), arity) {
        ("+" | "-", 1) => Binding::Sign,
        ("+" | "-", _) => Binding::Sum,
        ("*" | "/" | "%", 2) => Binding::Product,
        ("^", 2) => Binding::Power,
        ("=" | "<>" | "<" | ">" | "<=" | ">=", 2) => Binding::Comparison,
        _ => Binding::Operator,
    }
}

fn binding(s: &Scalar) -> Binding {
    match s {
        Scalar::Or(_) => Binding::Or,
        Scalar::And(_) => Binding::And,
        Scalar::Not(_) => Binding::Not,
        Scalar::Is { .. } | Scalar::Distinct { .. } => Binding::Is,
        Scalar::Quantified { .. } => Binding::Comparison,
        Scalar::InQuery { .. } => Binding::Like,
        Scalar::Operator(op, args) => operator_binding(op, args.len()),
        Scalar::Exists { negated: true, .. } => Binding::Not,
        Scalar::Literal(d, ty) => super::literal::binds(d, ty)
            .map_or(Binding::Atom, |cast| if cast { Binding::Cast } else { Binding::Sign }),
        Scalar::Cast(..) | Scalar::Param(..) => Binding::Cast,
        _ => Binding::Atom,
    }
}

impl Printer {
    pub(super) fn scalar(&mut self, s: &Scalar) {
        self.operand(s, Binding::Or);
    }

    fn operand(&mut self, s: &Scalar, least: Binding) {
        if let Scalar::Column { .. } = s {
            return self.bare(s);
        }
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
            if binding(s) < least {
                self.word("(");
                self.bare(s);
                self.word(")");
            } else {
                self.bare(s);
            }
        });
    }

    /// Writes a conjunct. `alone` says whether the clause has no other conjunct.
    pub(super) fn conjunct(&mut self, s: &Scalar, alone: bool) {
        self.operand(s, if alone { Binding::Or } else { Binding::Not });
    }

    fn bare(&mut self, s: &Scalar) {
        match s {
            Scalar::Column { table, name } => {
                if let Some(t) = table {
                    self.ident(t);
                    self.word(".");
                }
                self.ident(name);
            }
            Scalar::Literal(d, ty) => self.literal(d, ty),
            Scalar::Param(p, ty) => self.param(p, ty),
            Scalar::Call(name, args) => {
                self.qualified(name);
                self.arguments(args);
            }
            Scalar::Special(call, args) => {
                self.word(match call {
                    SpecialCall::Coalesce => "COALESCE",
                    SpecialCall::Greatest => "GREATEST",
                    SpecialCall::Least => "LEAST",
                    SpecialCall::NullIf => "NULLIF",
                });
                self.arguments(args);
            }
            Scalar::Form(pieces, args) => self.form(pieces, args),
            Scalar::Operator(op, args) => self.operator(op, args),
            Scalar::Aggregate(a) => self.aggregate(a, false),
            Scalar::Over(o) => self.over(o),
            Scalar::Cast(e, ty) => self.cast(e, ty),
            Scalar::And(terms) => self.chain(terms, " AND ", Binding::Not),
            Scalar::Or(terms) => self.chain(terms, " OR ", Binding::And),
            Scalar::Not(e) => {
                self.word("NOT ");
                self.operand(e, Binding::Is);
            }
            Scalar::Is { arg, test, negated } => {
                self.operand(arg, Binding::Comparison);
                self.word(if *negated { " IS NOT " } else { " IS " });
                self.word(match test {
                    IsTest::Null => "NULL",
                    IsTest::True => "TRUE",
                    IsTest::False => "FALSE",
                });
            }
            Scalar::Distinct { left, right, negated } => {
                self.operand(left, Binding::Like);
                self.word(if *negated { " IS NOT DISTINCT FROM " } else { " IS DISTINCT FROM " });
                self.operand(right, Binding::Like);
            }
            Scalar::Case { whens, otherwise } => self.case(whens, otherwise.as_deref()),
            _ => self.bare_rest(s),
        }
    }

    fn cast(&mut self, e: &Scalar, ty: &Type) {
        match ty.collation() {
            // The parser crate needs the parentheses: it reads COLLATE only after an expression in
            // parentheses.
            Some((base, collation)) => {
                self.word("(");
                self.operand(e, Binding::Cast);
                self.word("::");
                self.show(&base);
                self.word(") COLLATE ");
                self.word(collation);
            }
            None => {
                self.operand(e, Binding::Cast);
                self.word("::");
                self.show(ty);
            }
        }
    }

    /// Writes a call that has keywords among its arguments. The grammar of some calls requires parentheses
    /// around arguments, so each argument that is not a single word gets them.
    fn form(&mut self, pieces: &[FormPiece], args: &[Scalar]) {
        let mut args = args.iter();
        for (apart, piece) in spaced(pieces) {
            if apart {
                self.word(" ");
            }
            match piece {
                FormPiece::Word(words) => self.word(words),
                FormPiece::Name(name) => self.ident(&Ident::from(name)),
                FormPiece::Type(ty) => self.show(ty),
                FormPiece::Text(text) => self.quoted(text),
                FormPiece::Argument => args.next().into_iter().for_each(|a| self.operand(a, Binding::Atom)),
            }
        }
    }

    fn subscript(&mut self, at: &Subscript<Scalar>) {
        self.word("[");
        match at {
            Subscript::Index(i) => self.scalar(i),
            Subscript::Slice(lower, upper) => {
                lower.iter().for_each(|e| self.scalar(e));
                self.word(":");
                upper.iter().for_each(|e| self.scalar(e));
            }
        }
        self.word("]");
    }

    fn bare_rest(&mut self, s: &Scalar) {
        match s {
            Scalar::Quantified { arg, op, array, all } => {
                self.operand(arg, Binding::Sum);
                self.symbol(op);
                self.word(if *all { "ALL (" } else { "ANY (" });
                self.scalar(array);
                self.word(")");
            }
            Scalar::Array(items) => {
                self.word("ARRAY[");
                self.row(items, Self::scalar);
                self.word("]");
            }
            Scalar::Row(items) => {
                self.word("ROW");
                self.arguments(items);
            }
            Scalar::Subscript(array, at) => {
                self.word("(");
                self.scalar(array);
                self.word(")");
                at.iter().for_each(|at| self.subscript(at));
            }
            Scalar::Field(of, name) => {
                self.word("(");
                self.scalar(of);
                self.word(").");
                self.ident(name);
            }
            Scalar::Exists { query, negated } => {
                self.word(if *negated { "NOT EXISTS " } else { "EXISTS " });
                self.subquery(query);
            }
            Scalar::InQuery { args, query, negated } => {
                if let [one] = args.as_slice() {
                    self.operand(one, Binding::Operator);
                } else {
                    self.arguments(args);
                }
                self.word(if *negated { " NOT IN " } else { " IN " });
                self.subquery(query);
            }
            Scalar::Subquery(query) => self.subquery(query),
            Scalar::ArrayQuery(query) => {
                self.word("ARRAY");
                self.subquery(query);
            }
            _ => {}
        }
    }

    fn arguments(&mut self, args: &[Scalar]) {
        self.word("(");
        self.row(args, Self::scalar);
        self.word(")");
    }

    fn chain(&mut self, terms: &[Scalar], word: &str, least: Binding) {
        for (i, t) in terms.iter().enumerate() {
            if i > 0 {
                self.word(word);
            }
            self.operand(t, least);
        }
    }

    /// Writes an operator with a space before and after it, so that two operators never become one.
    fn symbol(&mut self, op: &Qualified) {
        self.word(" ");
        self.bare_symbol(op);
        self.word(" ");
    }

    fn bare_symbol(&mut self, op: &Qualified) {
        match &op.schema {
            Some(schema) => {
                self.word("OPERATOR(");
                self.show(schema);
                self.word(".");
                self.word(op.name.as_str());
                self.word(")");
            }
            None => self.word(op.name.as_str()),
        }
    }

    fn operator(&mut self, op: &Qualified, args: &[Scalar]) {
        let own = operator_binding(op, args.len());
        match args {
            [one] => {
                self.bare_symbol(op);
                // The text `- -1` is a number, but `--1` is a comment.
                let tight = own == Binding::Sign && binding(one) > Binding::Sign;
                self.word(if tight { "" } else { " " });
                self.operand(one, own.tighter());
            }
            [left, right] => {
                let associative = matches!(own, Binding::Sum | Binding::Product);
                self.operand(left, if associative { own } else { own.tighter() });
                self.symbol(op);
                self.operand(right, own.tighter());
            }
            _ => {}
        }
    }

    /// Writes a call of an aggregate. If `bare`, a call without arguments is written without `*`.
    fn aggregate(&mut self, a: &Aggregate, bare: bool) {
        self.qualified(&a.name);
        self.word("(");
        if a.distinct {
            self.word("DISTINCT ");
        }
        if a.args.is_empty() && !a.within_group && !bare {
            self.word("*");
        }
        match a.args.split_last() {
            Some((last, others)) if a.variadic => {
                self.row(others, Self::scalar);
                self.word(if others.is_empty() { "VARIADIC " } else { ", VARIADIC " });
                self.scalar(last);
            }
            Some(_) | None => self.row(&a.args, Self::scalar),
        }
        if !a.order_by.is_empty() && !a.within_group {
            self.word(" ORDER BY ");
            self.row(&a.order_by, Self::order);
        }
        self.word(")");
        if a.within_group {
            self.word(" WITHIN GROUP (ORDER BY ");
            self.row(&a.order_by, Self::order);
            self.word(")");
        }
        if let Some(f) = &a.filter {
            self.word(" FILTER (WHERE ");
            self.scalar(f);
            self.word(")");
        }
    }

    fn over(&mut self, o: &Over) {
        self.aggregate(&o.call, o.ranks);
        self.word(" OVER (");
        let mut gap = "";
        if !o.partition.is_empty() {
            self.word("PARTITION BY ");
            self.row(&o.partition, Self::scalar);
            gap = " ";
        }
        if !o.order_by.is_empty() {
            self.word(gap);
            self.word("ORDER BY ");
            self.row(&o.order_by, Self::order);
            gap = " ";
        }
        if let Some(frame) = &o.frame {
            self.word(gap);
            self.word(match frame.units {
                Units::Rows => "ROWS BETWEEN ",
                Units::Range => "RANGE BETWEEN ",
                Units::Groups => "GROUPS BETWEEN ",
            });
            self.bound(&frame.start);
            self.word(" AND ");
            self.bound(&frame.end);
            self.word(match frame.exclude {
                Exclusion::NoOthers => "",
                Exclusion::CurrentRow => " EXCLUDE CURRENT ROW",
                Exclusion::Group => " EXCLUDE GROUP",
                Exclusion::Ties => " EXCLUDE TIES",
            });
        }
        self.word(")");
    }

    fn bound(&mut self, b: &FrameBound) {
        match b {
            FrameBound::First => self.word("UNBOUNDED PRECEDING"),
            FrameBound::Current => self.word("CURRENT ROW"),
            FrameBound::Last => self.word("UNBOUNDED FOLLOWING"),
            FrameBound::Preceding(e) | FrameBound::Following(e) => {
                self.operand(e, Binding::Sum);
                self.word(if matches!(b, FrameBound::Preceding(_)) { " PRECEDING" } else { " FOLLOWING" });
            }
        }
    }

    pub(super) fn order(&mut self, o: &OrderBy) {
        self.scalar(&o.expr);
        if o.descending {
            self.word(" DESC");
        }
        if o.nulls_first != o.descending {
            self.word(if o.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
        }
    }

    fn case(&mut self, whens: &[(Scalar, Scalar)], otherwise: Option<&Scalar>) {
        self.word("CASE");
        for (condition, value) in whens {
            self.word(" WHEN ");
            self.scalar(condition);
            self.word(" THEN ");
            self.scalar(value);
        }
        if let Some(e) = otherwise {
            self.word(" ELSE ");
            self.scalar(e);
        }
        self.word(" END");
    }

    fn param(&mut self, p: &Param, ty: &Type) {
        let position = self.params.iter().position(|known| known == p).unwrap_or_else(|| {
            self.params.push(p.clone());
            self.params.len() - 1
        });
        let position = position + 1;
        // Drivers bind booleans, numbers and texts. Values of other types are bound as texts. PostgreSQL
        // derives the type of a parameter from the first cast of the parameter.
        let plain = matches!(ty, Type::Bool | Type::Int8 | Type::Float8 | Type::Text);
        self.put(format_args!("${position}::{}{ty}", if plain { "" } else { "text::" }));
    }

    /// Writes the assignment `name = expr`.
    pub(super) fn assignment(&mut self, (name, value): &(Ident, Scalar)) {
        self.ident(name);
        self.word(" = ");
        self.scalar(value);
    }
}
