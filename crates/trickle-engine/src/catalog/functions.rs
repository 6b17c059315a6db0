//! Functions and aggregates that the engine does not know.

use super::Name;
use super::types::Types;
use crate::db::Connection;
use crate::error::{Error, Result};
use std::sync::Arc;
use trickle_core::catalog::{FuncKind, FuncSig, Volatility, implicit_cast};
use trickle_core::types::Type;
use trickle_core::vocabulary;

/// The functions of the name `$2` in schema `$1`. A name without a schema means one of the server's own
/// functions, as in canonical texts. If the server has no function of that name, the function is looked for
/// in the search path of the connection.
const FUNCTIONS: &str = "
SELECT n.nspname, p.prokind::text, p.proretset, p.proargtypes::oid[], p.prorettype, p.provolatile::text, p.proisstrict,
    c.names, c.types, p.prorettype = 'record'::regtype OR c.composite, p.pronargdefaults,
    ARRAY(SELECT coalesce(p.proargnames[i.at], '') FROM unnest(coalesce(p.proargmodes, array_fill('i'::\"char\", ARRAY[p.pronargs::int])))
        WITH ORDINALITY i (mode, at) WHERE i.mode IN ('i', 'b', 'v') ORDER BY i.at)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(c.name ORDER BY c.at), '{}') AS names, coalesce(array_agg(c.type ORDER BY c.at), '{}') AS types,
        coalesce(bool_or(c.composite), false) AS composite
    FROM (
        SELECT a.at, coalesce(p.proargnames[a.at], ''), a.type, false
        FROM unnest(p.proallargtypes, p.proargmodes) WITH ORDINALITY AS a (type, mode, at) WHERE a.mode IN ('o', 'b', 't')
        UNION ALL
        SELECT a.attnum, a.attname::text, a.atttypid, true FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
        WHERE t.oid = p.prorettype AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped
    ) c (at, name, type, composite) WHERE p.proretset
) c
WHERE p.proname = $2 AND p.prokind <> 'p' AND (n.nspname = $1 OR $1::text IS NULL AND (n.nspname = 'pg_catalog' OR pg_function_is_visible(p.oid)
    AND NOT EXISTS (SELECT FROM pg_proc b WHERE b.proname = $2 AND b.pronamespace = 'pg_catalog'::regnamespace)))
ORDER BY p.oid";

/// The kind of a function by `pg_proc.prokind` and `proretset`. A procedure is an error, since no query can
/// call it.
pub(super) fn kind(prokind: &str, returns_set: bool) -> Result<FuncKind> {
    match (prokind, returns_set) {
        ("f", true) => Ok(FuncKind::SetReturning),
        ("f", false) => Ok(FuncKind::Scalar),
        ("a", _) => Ok(FuncKind::Aggregate),
        ("w", _) => Ok(FuncKind::Window),
        (unknown, _) => Err(vocabulary::unknown("kind of function", unknown).into()),
    }
}

/// A function, with the facts that decide which calls mean it.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) sig: Arc<FuncSig>,
    /// The names of the parameters; empty for a parameter without a name.
    names: Vec<String>,
    /// The number of parameters that have no default, which come first.
    required: usize,
}

impl Function {
    /// Returns the parameter of each argument of a call. Returns `None` if the call does not fit.
    fn parameters(&self, names: &[Option<&str>]) -> Option<Vec<usize>> {
        let place = |(i, name): (usize, &Option<&str>)| match name {
            Some(name) => self.names.iter().position(|n| n == name),
            None => Some(i).filter(|i| *i < self.sig.args.len()),
        };
        let places: Vec<usize> = names.iter().enumerate().map(place).collect::<Option<_>>()?;
        let is_once = places.iter().enumerate().all(|(i, p)| !places[..i].contains(p));
        let is_complete = (0..self.required).all(|p| places.contains(&p));
        (is_once && is_complete).then_some(places)
    }
}

/// Reads all functions of one name whose types the engine can express.
pub(super) async fn read(db: &dyn Connection, types: &mut Types, name: &Name) -> Result<Vec<Function>> {
    let doing = |e| Error::server(format!("read the definition of function \"{}\"", name.1), e);
    let rows = db.query(FUNCTIONS, &[&name.0, &name.1]).await.map_err(doing)?;
    types
        .load(
            db,
            rows.iter()
                .flat_map(|r| [r.get::<Vec<u32>>(3), r.get(8)].into_iter().flatten().chain([r.get(4)])),
        )
        .await?;
    let mut found = Vec::new();
    for r in rows {
        let args: Vec<u32> = r.get(3);
        let args = args.iter().map(|a| types.by_oid(*a)).collect::<Option<Vec<Type>>>();
        let (columns, column_types): (Vec<String>, Vec<u32>) = (r.get(7), r.get(8));
        let fields = column_types.iter().map(|t| types.by_oid(*t)).collect::<Option<Vec<Type>>>();
        let ret = match r.get(9) {
            true if !columns.is_empty() => fields.map(|f| Type::Record(f.into())),
            _ => types.by_oid(r.get(4)),
        };
        let (Some(args), Some(ret)) = (args, ret) else { continue };
        let (schema, prokind, volatile): (String, String, String) = (r.get(0), r.get(1), r.get(5));
        let kind = kind(&prokind, r.get(2))?;
        let sig = FuncSig {
            schema: (schema != "pg_catalog").then(|| Arc::from(schema.as_str())),
            name: Arc::from(name.1.as_str()),
            kind,
            args,
            ret,
            columns: columns.iter().map(|c| Arc::from(c.as_str())).collect(),
            form: Vec::new(),
            volatility: Volatility::parse(&volatile)?,
            strict: r.get(6),
            never_null: false,
            raises: true,
        };
        // In canonical text, variadic arguments are written as one array.
        let defaults = usize::try_from(r.get::<i16>(10)).unwrap_or(0);
        let required = sig.args.len().saturating_sub(defaults);
        found.push(Function { sig: Arc::new(sig), names: r.get(11), required });
    }
    Ok(found)
}

/// Returns the function that a call with these argument types means. `names` has the name of each argument,
/// and `None` for an argument without a name. The function is the one with exactly these types. If there is
/// none, it is the first function to whose parameter types the arguments can be cast implicitly. A call may
/// leave out arguments that have defaults. The signature has the types of the arguments in the order of the
/// call.
pub(super) fn pick(found: &[Function], names: &[Option<&str>], args: &[Type]) -> Option<Arc<FuncSig>> {
    let fits = |f: &Function, same: fn(&Type, &Type) -> bool| {
        let called: Vec<Type> = f.parameters(names)?.iter().map(|p| f.sig.args[*p].clone()).collect();
        let fits = args.iter().zip(&called).all(|(a, p)| same(a, p));
        fits.then(|| Arc::new(FuncSig { args: called, ..(*f.sig).clone() }))
    };
    let exact = found.iter().find_map(|f| fits(f, |a, p| a.base() == p.base()));
    exact.or_else(|| found.iter().find_map(|f| fits(f, implicit_cast)))
}
