//! Lowers calls that have a special grammar: SQL/JSON, SQL/XML, `IS JSON`, `IS DOCUMENT`, `IS NORMALIZED`.
//! Lowering derives only the type and the columns of a call, and leaves the meaning of the keywords to
//! PostgreSQL.

use super::Lowerer;
use super::clause::ClauseContext;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, FormPiece, FuncKind, FuncSig, Volatility};
use crate::rel::SetCall;
use crate::syntax::{Expr as Ast, Form as Written, FormPart, Node, Place};
use crate::types::{Datum, Type};
use std::sync::Arc;

/// A call whose parts are being read.
#[derive(Default)]
struct Form {
    pieces: Vec<FormPiece>,
    args: Vec<Expr>,
    /// The type that the RETURNING clause of the call names.
    returns: Option<Type>,
    columns: Vec<(Arc<str>, Type)>,
    /// The name of a column, if the next part of the call is this column's type.
    column: Option<Arc<str>>,
    /// The keywords that were read last.
    last: &'static str,
}

impl Form {
    fn word(&mut self, words: impl Into<Arc<str>>) {
        self.pieces.push(FormPiece::Word(words.into()));
    }
    /// Whether the next argument is the path of a `JSON_TABLE` or of one of its columns. Such a path is not
    /// an expression.
    fn is_path(&self) -> bool {
        matches!(self.last, "PATH" | "NESTED" | "NESTED PATH") || self.last == "," && self.args.len() == 1
    }
    /// Whether the call names a value to return instead of an error. If the input of such a call is NULL,
    /// PostgreSQL 17 and 18 do not return NULL. They return, wrongly, the value that the call returned for an
    /// error in an earlier row.
    fn replaces_errors(&self, name: &str) -> bool {
        let instead = |w: &str| w.ends_with(" ERROR") && !matches!(w, "NULL ON ERROR" | "ERROR ON ERROR");
        matches!(name, "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS")
            && self.pieces.iter().any(|p| matches!(p, FormPiece::Word(w) if instead(w)))
    }
    /// Whether the next arguments are values that become named elements or attributes. A value without AS
    /// takes the name of its column.
    fn names_values(&self, name: &str) -> bool {
        let word = |p: &FormPiece, text: &str| matches!(p, FormPiece::Word(w) if &**w == text);
        let attributes = self.pieces.iter().rposition(|p| word(p, "XMLATTRIBUTES"));
        name == "XMLFOREST" || attributes.is_some_and(|at| !self.pieces[at..].iter().any(|p| word(p, ")")))
    }
    /// Returns the type that an untyped constant has as the next argument.
    fn untyped(&self, name: &str) -> Type {
        let xml = matches!(name, "XMLCONCAT" | "XMLROOT" | "XMLSERIALIZE") && self.last != "VERSION";
        let defaults = match self.columns.last() {
            Some((_, ty)) => Some(ty),
            None => self.returns.as_ref(),
        };
        let ty = match (name, self.last) {
            (_, "DEFAULT") => defaults.cloned(),
            ("JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS", ",") if self.args.len() == 1 => {
                Type::parse("jsonpath")
            }
            (name, last) if xml || name.starts_with("XML") && last.starts_with("PASSING") => {
                Type::parse("xml")
            }
            _ => None,
        };
        ty.unwrap_or(Type::Text)
    }
    fn signature(&self, name: &str, kind: FuncKind, ret: Type) -> FuncSig {
        let args = self.args.iter().map(|a| a.ty().clone()).collect();
        let columns = self.columns.iter().map(|(name, _)| name.clone()).collect();
        // The call may contain casts that depend on settings, so its result may depend on settings too.
        let volatility = Volatility::Stable;
        let sig = FuncSig::unknown(None, &name.to_ascii_lowercase(), args, ret);
        FuncSig { kind, columns, form: self.pieces.clone(), volatility, ..sig }
    }
}

impl Lowerer<'_> {
    /// Lowers a call with special grammar in an expression.
    pub(super) fn form<'q>(
        &mut self,
        written: &'q Written,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let name = written.name;
        if name.ends_with("AGG") {
            return Err(self.stop(e, format!("{name} with FORMAT or another type than json and jsonb")));
        }
        let form = self.form_of(written, e, cx)?;
        let jsonb = form.args.iter().any(|a| *a.ty() == Type::Jsonb);
        let ret = match (name, &form.returns) {
            (_, Some(ty)) => Some(ty.clone()),
            ("JSON_VALUE" | "JSON_SERIALIZE", _) => Some(Type::Text),
            ("JSON_EXISTS" | "XMLEXISTS", _) => Some(Type::Bool),
            ("JSON_QUERY", _) => Some(Type::Jsonb),
            ("JSON_OBJECT" | "JSON_ARRAY", _) if jsonb => Some(Type::Jsonb),
            ("JSON_OBJECT" | "JSON_ARRAY" | "JSON" | "JSON_SCALAR", _) => Some(Type::Json),
            ("JSON_TABLE" | "XMLTABLE", _) => None,
            _ => Type::parse("xml"),
        };
        let Some(ret) = ret else {
            return Err(self.at(Error::syntax(format!("{name} stands in FROM only")), e));
        };
        let sig = form.signature(name, FuncKind::Scalar, ret.clone());
        let nothing = form.args.first().filter(|_| form.replaces_errors(name)).map(|of| of.clone().is_null());
        let call = Expr::new(ExprKind::Call(Arc::new(sig), form.args), ret.clone());
        Ok(match nothing {
            Some(nothing) => {
                let kind =
                    ExprKind::Case { whens: vec![(nothing, Expr::null(ret.clone()))], otherwise: call };
                Expr::new(kind, ret)
            }
            None => call,
        })
    }

    /// Lowers `JSON_TABLE` and `XMLTABLE`.
    pub(super) fn table_form<'q>(
        &mut self,
        written: &'q Written,
        place: &impl Place,
        cx: &mut ClauseContext<'q>,
    ) -> Result<SetCall> {
        let name = written.name;
        if !matches!(name, "JSON_TABLE" | "XMLTABLE") {
            return Err(self.stop(place, format!("{name} in FROM")));
        }
        let form = self.form_of(written, place, cx)?;
        let ret = match form.columns.as_slice() {
            [] => return Err(self.at(Error::syntax(format!("{name} has no columns")), place)),
            [(_, one)] => one.clone(),
            several => Type::Record(several.iter().map(|(_, ty)| ty.clone()).collect()),
        };
        let sig = Arc::new(form.signature(name, FuncKind::SetReturning, ret));
        Ok(SetCall { sig, args: form.args, defined: false })
    }

    /// Lowers `a IS [NOT] words`, such as `a IS JSON`.
    pub(super) fn is_form<'q>(
        &mut self,
        value: &'q Ast,
        words: &str,
        negated: bool,
        untyped: &Type,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let value = self.expr(value, cx)?;
        let value = if *value.ty() == Type::Unknown { self.coerce(value, untyped)? } else { value };
        let words = format!("IS {words}");
        let mut form = Form { args: vec![value], ..Form::default() };
        form.word("(");
        form.pieces.push(FormPiece::Argument);
        form.word(words.as_str());
        form.word(")");
        let sig = Arc::new(form.signature(&words, FuncKind::Scalar, Type::Bool));
        let test = Expr::new(ExprKind::Call(sig, form.args), Type::Bool);
        Ok(if negated { test.negated() } else { test })
    }

    fn form_of<'q>(
        &mut self,
        written: &'q Written,
        place: &impl Place,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Form> {
        let (name, parts) = (written.name, &written.parts);
        let unread = || Error::syntax(format!("{name} is not called so"));
        if !is_whole(name, parts) {
            return Err(self.at(unread(), place));
        }
        let mut form = Form::default();
        form.word(name);
        form.word("(");
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            let named = matches!(parts.peek(), Some(FormPart::Word("AS")));
            match part {
                FormPart::Word(words) => {
                    if let ("FOR ORDINALITY", Some(column)) = (*words, form.column.take()) {
                        form.columns.push((column, Type::Int4));
                    }
                    form.word(*words);
                    form.last = words;
                    continue;
                }
                FormPart::Name(given) => {
                    let given: Arc<str> = Arc::from(given.as_str());
                    form.pieces.push(FormPiece::Name(given.clone()));
                    form.column = (!matches!(form.last, "AS" | "NAME")).then_some(given);
                }
                FormPart::Type(ty) => {
                    if self.is_constrained(ty) {
                        return Err(
                            self.stop(place, format!("{name} of {}, a domain with constraints", ty.text))
                        );
                    }
                    let ty = self.type_named(ty)?;
                    form.pieces.push(FormPiece::Type(ty.clone()));
                    match form.column.take() {
                        Some(column) => form.columns.push((column, ty)),
                        None => form.returns = Some(ty),
                    }
                }
                FormPart::Argument(arg) => {
                    self.form_argument(name, &mut form, arg, cx)?;
                    if !named && form.names_values(name) {
                        let given = self.element_name(arg)?;
                        form.word("AS");
                        form.pieces.push(FormPiece::Name(given));
                    }
                }
            }
            form.last = "";
        }
        if form.column.is_some() {
            return Err(self.at(unread(), place));
        }
        form.word(")");
        Ok(form)
    }

    /// Returns the name of the XML element for a value without AS: the name of the value's column.
    fn element_name(&self, value: &Ast) -> Result<Arc<str>> {
        let name = match &value.node {
            Node::Name(parts) => parts.last(),
            _ => None,
        };
        name.map(|name| Arc::from(name.folded())).ok_or_else(|| {
            let e = Error::syntax("unnamed XML element value must be a column reference");
            self.at(e.hint("Give it a name with AS."), value)
        })
    }

    fn form_argument<'q>(
        &mut self,
        name: &str,
        form: &mut Form,
        arg: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<()> {
        let value = self.expr(arg, cx)?;
        if name == "JSON_TABLE" && form.is_path() {
            let Some(Datum::Text(path)) = value.as_literal() else {
                let m = "only string constants are supported in JSON_TABLE path specification";
                return Err(self.at(Error::unsupported(m), arg));
            };
            form.pieces.push(FormPiece::Text(path.clone()));
            return Ok(());
        }
        let value = match value.ty() {
            Type::Unknown => self.coerce(value, &form.untyped(name))?,
            _ => value,
        };
        form.pieces.push(FormPiece::Argument);
        form.args.push(value);
        Ok(())
    }
}

/// Whether the call has its mandatory parts: enough arguments, and no empty place before or after a comma.
fn is_whole(name: &str, parts: &[FormPart]) -> bool {
    let least = match name {
        "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS" | "XMLEXISTS" | "JSON_TABLE" | "XMLTABLE" => 2,
        "JSON_OBJECT" | "JSON_ARRAY" | "XMLELEMENT" | "XMLPI" => 0,
        _ => 1,
    };
    let arguments = parts.iter().filter(|p| matches!(p, FormPart::Argument(_))).count();
    let open = |p: &FormPart| matches!(p, FormPart::Word("," | "(" | ":"));
    let closed = |p: &FormPart| matches!(p, FormPart::Word("," | ")" | ":"));
    let gap = parts.windows(2).any(|pair| open(&pair[0]) && closed(&pair[1]));
    arguments >= least
        && !gap
        && !parts.first().is_some_and(closed)
        && !parts.last().is_some_and(|p| matches!(p, FormPart::Word("," | ":")))
}
