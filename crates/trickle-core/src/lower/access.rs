//! Lowers access to parts of arrays and documents: `a[i]`, `a[l:u]`, `j['key']`.

use super::Lowerer;
use super::clause::ClauseContext;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, FuncSig, Subscript};
use crate::syntax::{Access, Expr as Ast, Ident, Node, Subscript as AstSubscript};
use crate::types::{Datum, Type};

impl Lowerer<'_> {
    /// Lowers subscripts and field accesses. In `t.a[1]`, the part before the first bracket, `t.a`, names the
    /// column.
    pub(super) fn access<'q>(
        &mut self,
        whole: &'q Ast,
        root: &'q Ast,
        chain: &'q [Access],
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let mut names: Vec<Ident> = match &root.node {
            Node::Name(names) => names.clone(),
            _ => Vec::new(),
        };
        let dotted = |a: &Access| match a {
            Access::Field(name) => Some(name.clone()),
            Access::AllFields | Access::Subscript(_) => None,
        };
        let mut at = chain;
        if !names.is_empty() {
            let before = names.len();
            names.extend(chain.iter().map_while(dotted));
            at = &chain[names.len() - before..];
        }
        let mut value = if names.is_empty() { self.expr(root, cx)? } else { self.name(&names, cx)? };
        if let Some((Access::Field(name), rest)) = at.split_first()
            && let Some(column) = self.set_column(&value, name, cx)
        {
            (value, at) = (column, rest);
            if at.is_empty() {
                return Ok(value);
            }
        }
        while let Some((first, rest)) = at.split_first() {
            match first {
                Access::Field(name) => {
                    value = self.field(whole, value, name)?;
                    at = rest;
                }
                Access::AllFields => return Err(self.stop(whole, "all fields of a composite value")),
                Access::Subscript(_) => {
                    let subscript = |a: &'q Access| match a {
                        Access::Subscript(s) => Some(s),
                        Access::Field(_) | Access::AllFields => None,
                    };
                    let subscripts: Vec<&AstSubscript> = at.iter().map_while(subscript).collect();
                    value = self.subscripted(whole, value, &subscripts, cx)?;
                    at = &at[subscripts.len()..];
                }
            }
        }
        Ok(value)
    }

    /// Returns the fields of a composite value. Returns `None` for a value of another type.
    pub(super) fn fields(&self, value: &Expr) -> Option<Vec<Expr>> {
        let fields = self.catalog.fields(value.ty())?.into_iter();
        let field = |name: &str, ty| FuncSig::field(name, value.ty().clone(), ty);
        Some(fields.map(|(name, ty)| Expr::call(field(&name, ty), vec![value.clone()])).collect())
    }

    /// Lowers `(value).name`.
    fn field(&mut self, whole: &Ast, value: Expr, name: &Ident) -> Result<Expr> {
        let (wanted, ty) = (name.folded(), value.ty().clone());
        let Some(fields) = self.catalog.fields(&ty) else {
            return Err(self.stop(whole, format!("a field of a value of type {ty}")));
        };
        match fields.into_iter().find(|(field, _)| **field == *wanted) {
            Some((_, field)) => Ok(Expr::call(FuncSig::field(&wanted, ty, field), vec![value])),
            None => {
                let e = format!("column \"{wanted}\" not found in data type {ty}");
                Err(Error::unknown_column(e))
            }
        }
    }

    fn subscripted<'q>(
        &mut self,
        whole: &'q Ast,
        value: Expr,
        subscripts: &[&'q AstSubscript],
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        match value.ty().clone() {
            Type::Jsonb => self.path(whole, value, subscripts, cx),
            Type::Array(element) => self.subscript(value, &element, subscripts, cx),
            ty => {
                self.known_types("a subscript", std::slice::from_ref(&ty), whole)?;
                let e = format!("cannot subscript type {ty} because it does not support subscripting");
                Err(Error::type_mismatch(e))
            }
        }
    }

    /// Lowers array subscripts. If one subscript is a slice, PostgreSQL reads every other subscript `i` as
    /// the slice `[1:i]`.
    fn subscript<'q>(
        &mut self,
        array: Expr,
        element: &Type,
        subscripts: &[&'q AstSubscript],
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let sliced = subscripts.iter().any(|s| matches!(s, AstSubscript::Slice(..)));
        let mut at = Vec::new();
        for s in subscripts {
            at.push(match s {
                AstSubscript::Index(index) => {
                    let index = self.bound(index, cx)?;
                    let one = Expr::literal(Datum::Int(1), Type::Int4);
                    if sliced { Subscript::Slice(Some(one), Some(index)) } else { Subscript::Index(index) }
                }
                AstSubscript::Slice(lower, upper) => {
                    let lower = lower.as_deref().map(|e| self.bound(e, cx)).transpose()?;
                    Subscript::Slice(lower, upper.as_deref().map(|e| self.bound(e, cx)).transpose()?)
                }
            });
        }
        let ty = if sliced { array.ty().clone() } else { element.clone() };
        Ok(Expr::new(ExprKind::Subscript { array, at }, ty))
    }

    fn bound<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let value = self.expr(e, cx)?;
        let value = self.coerce_implicitly(value, &Type::Int4, "array subscript");
        self.located(value, e)
    }

    /// Lowers `j[k]…` to `j #> ARRAY[k, …]`. The operator takes keys as texts, so `['1']` finds an element of
    /// an array, and `[1]` finds a key of an object.
    fn path<'q>(
        &mut self,
        whole: &'q Ast,
        json: Expr,
        subscripts: &[&'q AstSubscript],
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let mut keys = Vec::new();
        for s in subscripts {
            let AstSubscript::Index(index) = s else {
                return Err(self.at(Error::type_mismatch("jsonb subscript does not support slices"), whole));
            };
            let key = self.expr(index, cx)?;
            let ty = if key.ty().is_integer() { Type::Int4 } else { Type::Text };
            let key = self.coerce_implicitly(key, &ty, "jsonb subscript");
            keys.push(self.located(key, index)?.cast(Type::Text));
        }
        let path = self.array(keys)?;
        self.compare("#>", json, path)
    }
}
