//! Records the types, domains and collations that statements define. Finds the types that statements name.

use super::Ddl;
use crate::catalog::memory::{DEFAULT_SCHEMA, composite, quoted};
use crate::catalog::{Catalog, extensions};
use crate::error::{Error, Result};
use crate::syntax::{
    Attribute, CreateCollation, CreateDomain, CreateType, ObjectName, TypeDefinition, TypeName,
};
use crate::types::{OtherType, Type};
use std::sync::Arc;

/// The pseudo-types of PostgreSQL. A pseudo-type stands for other types, or has no values. If one of a
/// function's types is a pseudo-type, only the function's name is recorded.
const PSEUDO: [&str; 22] = [
    "any",
    "anyarray",
    "anycompatible",
    "anycompatiblearray",
    "anycompatiblemultirange",
    "anycompatiblenonarray",
    "anycompatiblerange",
    "anyelement",
    "anyenum",
    "anymultirange",
    "anynonarray",
    "anyrange",
    "cstring",
    "event_trigger",
    "fdw_handler",
    "index_am_handler",
    "internal",
    "language_handler",
    "table_am_handler",
    "trigger",
    "tsm_handler",
    "void",
];

impl Ddl<'_> {
    pub(super) fn create_domain(&mut self, d: &CreateDomain) -> Result<()> {
        let base = self.ty(&d.ty)?;
        let (schema, name) = self.name(&d.name);
        // A domain has the operators of its base type. If the domain has a collation, its texts are compared
        // under this collation.
        let ty = match &d.collation {
            Some(c) => self.collated(base, c),
            None => base,
        };
        let constrained = d.constrained || self.is_constrained(&d.ty);
        self.catalog.add_domain((schema, name), ty, constrained);
        Ok(())
    }

    /// Returns the type with a name. An undefined type is opaque, since the server may have this type.
    pub(super) fn ty(&self, ty: &TypeName) -> Result<Type> {
        let named = |schema: Option<&str>, name: &str| {
            let found = self.catalog.named_type(schema, name);
            found.or_else(|| (!PSEUDO.contains(&name)).then(|| self.opaque_type(schema, name, ty)))
        };
        ty.resolve(&named).or_else(|name| {
            let name = name.to_lowercase();
            match PSEUDO.contains(&name.as_str()) {
                true => Err(Error::unknown_object(format!("type \"{name}\" does not exist"))),
                false => Ok(self.opaque_type(None, &name, ty)),
            }
        })
    }

    fn opaque_type(&self, schema: Option<&str>, name: &str, place: &TypeName) -> Type {
        let schema = schema.unwrap_or(DEFAULT_SCHEMA).to_owned();
        let key = (schema, name.to_owned());
        let ty = composite(&key);
        let e = Error::unknown_object(format!("type \"{name}\" is not known offline"));
        let help = match extensions::that_has(name) {
            Some(extension) => {
                format!("Extension \"{extension}\" has one of this name: write CREATE EXTENSION before it.")
            }
            None => {
                "Queries may show its values; whether there is more that they can do, the server decides."
                    .to_owned()
            }
        };
        let e = e.hint(help);
        let e = match place.object() {
            Some(name) => self.at(e, name),
            None => e,
        };
        let mut opaque = self.opaque.borrow_mut();
        if opaque.iter().all(|(k, _)| *k != key) {
            opaque.push((key, e));
        }
        ty
    }

    fn is_constrained(&self, ty: &TypeName) -> bool {
        ty.object().is_some_and(|name| {
            let (schema, name) = name.qualified();
            self.catalog.is_constrained(schema.as_deref(), &name)
        })
    }

    /// Returns a string type under a collation. A collation other than `default` determines the order of
    /// texts. A nondeterministic collation also determines which texts are equal.
    pub(super) fn collated(&self, ty: Type, name: &ObjectName) -> Type {
        let (schema, collation) = name.qualified();
        if collation == "default" {
            return ty;
        }
        match self.catalog.collation(schema.as_deref(), &collation) {
            Some(found) => ty.collated(&found.sql_name, found.deterministic),
            None => ty,
        }
    }

    pub(super) fn create_type(&mut self, t: &CreateType) -> Result<()> {
        let is_enum = match &t.definition {
            TypeDefinition::Composite(attributes) => return self.create_composite(&t.name, attributes),
            TypeDefinition::Enum => true,
            TypeDefinition::Other => false,
        };
        let (schema, name) = self.name(&t.name);
        let other = OtherType {
            sql_name: format!("{}.{}", quoted(&schema), quoted(&name)),
            equality: true,
            hashable: is_enum,
            ordered: true,
            exact: is_enum,
        };
        self.catalog.add_type(&schema, &name, Type::Other(Arc::new(other)));
        Ok(())
    }

    fn create_composite(&mut self, name: &ObjectName, attributes: &[Attribute]) -> Result<()> {
        let field = |a: &Attribute| {
            let ty = self.ty(&a.ty).map_err(|e| self.at(e, &a.name))?;
            let ty = a.collation.as_ref().map_or_else(|| ty.clone(), |c| self.collated(ty.clone(), c));
            Ok((Arc::from(a.name.folded()), ty))
        };
        let fields = attributes.iter().map(field).collect::<Result<Vec<_>>>()?;
        self.catalog.add_composite(self.name(name), fields);
        Ok(())
    }

    pub(super) fn create_collation(&mut self, c: &CreateCollation) {
        if c.nondeterministic {
            self.catalog.add_inexact_collation(self.name(&c.name));
        }
    }
}
