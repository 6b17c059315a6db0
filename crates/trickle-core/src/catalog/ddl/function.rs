//! Records the functions and aggregates that statements define.

use super::Ddl;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::expr::{FuncKind, FuncSig, Volatility};
use crate::syntax::{CreateAggregate, CreateFunction};
use crate::types::Type;
use std::sync::Arc;

impl Ddl<'_> {
    /// Adds an aggregate. The result type is that of the final function. Without a final function, the result
    /// type is the state type.
    pub(super) fn create_aggregate(&mut self, a: &CreateAggregate) -> Result<()> {
        let (schema, name) = self.name(&a.name);
        let args = a.args.iter().map(|t| self.ty(t)).collect::<Result<Vec<_>>>();
        let (args, state) =
            args.and_then(|args| Ok((args, self.ty(&a.state)?))).map_err(|e| self.at(e, &a.name))?;
        let ret = match &a.finish {
            None => state,
            Some(finish) => {
                let (schema, name) = finish.qualified();
                match self.catalog.function(schema.as_deref(), &name, &[state]) {
                    Some(finish) => finish.ret.clone(),
                    // The final function is built into the server, and its result type is not known here.
                    None => return Ok(()),
                }
            }
        };
        let sig = FuncSig::unknown(Some(&schema), &name, args, ret.base());
        self.catalog.add_function(FuncSig {
            kind: FuncKind::Aggregate,
            volatility: Volatility::Immutable,
            ..sig
        });
        Ok(())
    }

    pub(super) fn create_function(&mut self, f: &CreateFunction) -> Result<()> {
        let (schema, name) = self.name(&f.name);
        let Ok(args) = f.args.iter().map(|ty| self.ty(ty)).collect::<Result<Vec<_>>>() else {
            self.catalog.add_vague(name);
            return Ok(());
        };
        let Some(ret) = &f.returns else { return Ok(()) };
        let columns = f.columns.as_slice();
        let fields = columns.iter().map(|(_, ty)| self.ty(ty)).collect::<Result<Vec<_>>>();
        let set = f.returns_set || !columns.is_empty();
        // A function that returns a trigger or a pseudo-type cannot occur in an expression, and is not
        // recorded.
        let ret = match (fields, columns) {
            (Ok(fields), [_, _, ..]) => Type::Record(fields.into()),
            (Ok(fields), [_]) => fields.into_iter().next().unwrap_or(Type::Unknown),
            (Ok(_), []) => match self.ty(ret) {
                Ok(ret) => ret,
                Err(_) => return Ok(()),
            },
            (Err(_), _) => return Ok(()),
        };
        let mut sig = FuncSig::unknown(Some(&schema), &name, args, ret);
        sig.columns = columns.iter().map(|(name, _)| Arc::from(name.folded())).collect();
        if set {
            sig.kind = FuncKind::SetReturning;
        }
        sig.volatility = f.volatility;
        sig.strict = f.strict;
        self.catalog.add_function(sig);
        Ok(())
    }
}
