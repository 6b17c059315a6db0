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
/// in the search path of the connection. If `$3` is not NULL, a function that is not one of the server's own
/// counts only if its oid is in `$3`.
///
/// A call may leave out arguments that have defaults. Whether these arguments are the same in every call is
/// decided by the server's tree of the default expressions: they may contain constants and immutable
/// functions of the server's own.
const FUNCTIONS: &str = "
SELECT n.nspname, p.prokind::text, p.proretset, p.proargtypes::oid[], p.prorettype, p.provolatile::text, p.proisstrict,
    c.names, c.types, p.prorettype = 'record'::regtype OR c.composite, p.pronargdefaults,
    ARRAY(SELECT coalesce(p.proargnames[i.at], '') FROM unnest(coalesce(p.proargmodes, array_fill('i'::\"char\", ARRAY[p.pronargs::int])))
        WITH ORDINALITY i (mode, at) WHERE i.mode IN ('i', 'b', 'v') ORDER BY i.at),
    p.proargdefaults IS NULL OR p.proargdefaults::text !~ '\\{(?!(CONST|RELABELTYPE|ARRAYEXPR|FUNCEXPR|OPEXPR) )'
        AND NOT EXISTS (SELECT FROM regexp_matches(p.proargdefaults::text, ':(?:funcid|opfuncid) (\\d+)', 'g') f(id)
            LEFT JOIN pg_proc q ON q.oid = f.id[1]::oid AND q.oid < 16384 WHERE q.provolatile IS DISTINCT FROM 'i'),
    p.provariadic <> 0
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
    AND (p.oid < 16384 OR $3::oid[] IS NULL OR p.oid = ANY ($3))
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

/// A function, with the names and the defaults of its parameters.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) sig: Arc<FuncSig>,
    /// The names of the parameters; empty for a parameter without a name.
    names: Vec<String>,
    /// The number of the first parameters that a call must give an argument.
    required: usize,
    /// Whether the last parameter takes any number of arguments. In canonical text, these arguments are
    /// written as one array.
    variadic: bool,
}

impl Function {
    /// Returns the number of the parameter that takes each argument of a call. Returns `None` if the call
    /// does not fit.
    fn parameters(&self, names: &[Option<&str>]) -> Option<Vec<usize>> {
        if self.variadic && names.iter().any(Option::is_some) {
            return None;
        }
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
pub(super) async fn read(
    db: &dyn Connection,
    types: &mut Types,
    name: &Name,
    called: Option<&[u32]>,
) -> Result<Vec<Function>> {
    let doing = |e| Error::server(format!("read the definition of function \"{}\"", name.1), e);
    let rows = db.query(FUNCTIONS, &[&name.0, &name.1, &called.map(<[u32]>::to_vec)]).await.map_err(doing)?;
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
        let defaults = usize::try_from(r.get::<i16>(10)).unwrap_or(0);
        let left_out = if r.get(12) { defaults } else { 0 };
        let required = sig.args.len().saturating_sub(left_out);
        found.push(Function { sig: Arc::new(sig), names: r.get(11), required, variadic: r.get(13) });
    }
    Ok(found)
}

/// Returns the signature of the function that a call means, with its parameter types in the order of the
/// call. `names` has the name of each argument, and `None` for an argument without a name. A function with
/// exactly these types comes first, and of several such functions the one of which the call leaves out the
/// fewest arguments. Otherwise it is the only function to whose parameter types the arguments can be cast
/// implicitly. Returns `None` if several functions fit, since PostgreSQL's further rules are not known here.
pub(super) fn pick(found: &[Function], names: &[Option<&str>], args: &[Type]) -> Option<Arc<FuncSig>> {
    let fits = |f: &Function, same: fn(&Type, &Type) -> bool| {
        let called: Vec<Type> = f.parameters(names)?.iter().map(|p| f.sig.args[*p].clone()).collect();
        let left_out = f.sig.args.len() - called.len();
        let fits = args.iter().zip(&called).all(|(a, p)| same(a, p));
        fits.then(|| (left_out, Arc::new(FuncSig { args: called, ..(*f.sig).clone() })))
    };
    let mut exact: Vec<_> = found.iter().filter_map(|f| fits(f, |a, p| a.base() == p.base())).collect();
    exact.sort_by_key(|(left_out, _)| *left_out);
    match exact.as_slice() {
        [(_, only)] => return Some(only.clone()),
        [(first, sig), (second, _), ..] => return (first < second).then(|| sig.clone()),
        [] => {}
    }
    let mut castable = found.iter().filter_map(|f| fits(f, implicit_cast));
    castable.next().filter(|_| castable.next().is_none()).map(|(_, sig)| sig)
}
