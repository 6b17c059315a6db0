//! Built-in scalar functions and operators. Each function has one `Row`: its signature, its flags, and the
//! code that computes its value, if the evaluator knows the function. A new function is one row in the file
//! of its family.
//!
//! Flags agree with PostgreSQL's `pg_proc`. A function whose row has no code for its value is opaque. The
//! value of an opaque function in the evaluator is a hash of its name and arguments, so that laws over plans
//! can still be tested.

mod array;
mod datetime;
mod json;
mod network;
mod number;
mod other;
mod range;
mod resolve;
mod sets;
mod text;
mod unkept;
mod values;

use super::{FuncKind, FuncSig, Volatility};
use crate::error::Result;
use crate::types::{Datum, Type};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

pub use resolve::{cast_volatility, common_type, implicit_cast};
pub(crate) use unkept::{Unkept, unkept};
pub(crate) use values::interval::quotient as divide_interval;

/// Computes a call from its evaluated arguments. The arguments of a strict function are never NULL.
pub type Value = fn(&[Datum]) -> Result<Datum>;

/// One function or operator for one list of argument types.
struct Row {
    name: &'static str,
    /// The types of the function, as `argument types -> result type`, in PostgreSQL's spelling. A last
    /// argument `variadic t` stands for any number of arguments of type `t`. A result `(name type, …)` gives
    /// the columns of the function in FROM.
    types: &'static str,
    flags: u16,
    value: Option<Value>,
}

/// Whether some argument values make the function raise an error.
const RAISES: u16 = 1;
/// Whether the result may be NULL though no argument is NULL.
const NULLABLE: u16 = 2;
/// Whether the function is also called with NULL arguments.
const LAX: u16 = 4;
/// Volatility `STABLE`; without [`STABLE`] and [`VOLATILE`], the volatility is `IMMUTABLE`.
const STABLE: u16 = 8;
/// Volatility `VOLATILE`.
const VOLATILE: u16 = 16;
/// Whether the function is an operator, written with a symbol.
const OPERATOR: u16 = 32;
/// Whether the function returns a set of rows.
const SET: u16 = 64;
/// Whether the function is a window function.
const WINDOW: u16 = 128;
/// Whether the code that computes the value takes trailing blanks into account. Comparisons of `char(n)`
/// ignore these blanks, so over `char(n)` the function is opaque.
const COMPARES: u16 = 256;

/// Makes a row of a function whose value the evaluator can compute.
const fn f(name: &'static str, types: &'static str, flags: u16, value: Value) -> Row {
    Row { name, types, flags, value: Some(value) }
}

/// Makes a row of a function whose value the evaluator cannot compute.
const fn opaque(name: &'static str, types: &'static str, flags: u16) -> Row {
    Row { name, types, flags, value: None }
}

const FAMILIES: &[&[Row]] = &[
    number::ROWS,
    text::ROWS,
    datetime::ROWS,
    json::ROWS,
    array::ROWS,
    sets::ROWS,
    network::ROWS,
    range::INT4,
    range::INT8,
    range::NUM,
    range::DATE,
    range::TS,
    range::TSTZ,
    other::ROWS,
];

/// The types that a declared argument accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// This type, and types with an implicit cast to this type.
    Is(Type),
    /// Any type, without a cast.
    Any,
    /// The element type, which the arguments of the call determine.
    Element,
    /// An array of the element type, which the arguments of the call determine.
    Array,
}

impl Pattern {
    fn parse(text: &str) -> Option<Pattern> {
        Some(match text {
            "any" => Pattern::Any,
            "anyelement" => Pattern::Element,
            "anyarray" => Pattern::Array,
            _ => Pattern::Is(Type::parse(text)?),
        })
    }
}

/// A row with its types parsed.
struct Entry {
    row: &'static Row,
    args: Vec<Pattern>,
    variadic: bool,
    ret: Pattern,
    columns: Vec<Arc<str>>,
}

impl Entry {
    fn parse(row: &'static Row) -> Option<Entry> {
        let (args, ret) = row.types.split_once("->")?;
        let mut variadic = false;
        let args = args
            .split(',')
            .map(str::trim)
            .filter(|a| !a.is_empty())
            .map(|a| {
                variadic = a.starts_with("variadic ");
                Pattern::parse(a.trim_start_matches("variadic "))
            })
            .collect::<Option<Vec<_>>>()?;
        let (ret, columns) = match ret.trim().strip_prefix('(') {
            None => (Pattern::parse(ret.trim())?, Vec::new()),
            Some(list) => {
                let column = |c: &str| {
                    let (name, ty) = c.trim().split_once(' ')?;
                    Some((Arc::from(name), Type::parse(ty)?))
                };
                let columns: Option<Vec<(Arc<str>, Type)>> =
                    list.trim_end_matches(')').split(',').map(column).collect();
                let (names, mut types): (Vec<_>, Vec<_>) = columns?.into_iter().unzip();
                let ty = if types.len() == 1 { types.pop() } else { None };
                (Pattern::Is(ty.unwrap_or_else(|| Type::Record(types.into()))), names)
            }
        };
        Some(Entry { row, args, variadic, ret, columns })
    }

    /// Returns the pattern of types that the row declares for argument number `position` of a call.
    fn arg(&self, position: usize) -> Option<&Pattern> {
        self.args.get(position).or_else(|| self.args.last().filter(|_| self.variadic))
    }

    fn takes(&self, count: usize) -> bool {
        if self.variadic { count + 1 >= self.args.len() } else { count == self.args.len() }
    }

    fn has(&self, flag: u16) -> bool {
        self.row.flags & flag != 0
    }

    /// Returns the signature for arguments of exactly these types.
    fn signature(&self, args: Vec<Type>, element: Option<&Type>) -> Option<FuncSig> {
        let ret = match &self.ret {
            Pattern::Is(t) => t.clone(),
            Pattern::Element => element?.clone(),
            Pattern::Array => element?.clone().array(),
            Pattern::Any => return None,
        };
        Some(FuncSig {
            schema: None,
            name: Arc::from(self.row.name),
            kind: match self.row.flags & (OPERATOR | SET | WINDOW) {
                OPERATOR => FuncKind::Operator,
                SET => FuncKind::SetReturning,
                WINDOW => FuncKind::Window,
                _ => FuncKind::Scalar,
            },
            args,
            ret,
            columns: self.columns.clone(),
            form: Vec::new(),
            volatility: match self.row.flags & (STABLE | VOLATILE) {
                STABLE => Volatility::Stable,
                VOLATILE => Volatility::Volatile,
                _ => Volatility::Immutable,
            },
            strict: !self.has(LAX),
            never_null: !self.has(NULLABLE),
            raises: self.has(RAISES),
        })
    }
}

/// Returns the entries of all functions, by the name of the function.
fn table() -> &'static HashMap<&'static str, Vec<Entry>> {
    static TABLE: OnceLock<HashMap<&'static str, Vec<Entry>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: HashMap<&'static str, Vec<Entry>> = HashMap::new();
        for entry in FAMILIES.iter().copied().flatten().filter_map(Entry::parse) {
            table.entry(entry.row.name).or_default().push(entry);
        }
        table
    })
}

/// Resolves a built-in function by name and argument types, as PostgreSQL would resolve it, with implicit
/// casts. If the type of an argument differs from that in `sig.args` in more than a modifier, the caller
/// casts the argument. Untyped literals get the declared type. Collations do not affect the choice of the
/// function.
pub fn resolve_function(name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
    let args: Vec<Type> = args.iter().map(Type::uncollated).collect();
    resolve::select(table().get(name)?.iter().filter(|e| !e.has(OPERATOR)), &args).map(Arc::new)
}

/// Whether a built-in function of this name returns a set of rows.
pub(crate) fn returns_set(name: &str) -> bool {
    table().get(name).is_some_and(|entries| entries.iter().any(|e| e.has(SET)))
}

/// Resolves a built-in operator of one or two operands, like [`resolve_function`]. A comparison of two
/// integers of different width, or of two strings, does not cast its operands. An index on either operand can
/// therefore be used.
pub fn resolve_operator(op: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
    let op = if op == "!=" { "<>" } else { op };
    if let ("=" | "<>" | "<" | "<=" | ">" | ">=", [l, r]) = (op, args) {
        return resolve::comparison(op, l, r);
    }
    let args: Vec<Type> = args.iter().map(Type::uncollated).collect();
    let args = resolve::concatenated(op, &args);
    resolve::select(table().get(op)?.iter().filter(|e| e.has(OPERATOR)), &args).map(Arc::new)
}

/// Returns the entry of a function that is built into PostgreSQL, by its name and the types of its arguments.
fn entry_of(sig: &FuncSig) -> Option<&'static Entry> {
    table().get(&*sig.name)?.iter().find(|e| {
        e.has(OPERATOR) == sig.is_operator() && e.takes(sig.args.len()) && resolve::is_exact(e, &sig.args)
    })
}

/// Returns the code that computes the value of a function. Returns `None` for a function that is opaque or
/// not built in.
pub fn value_of(sig: &FuncSig) -> Option<Value> {
    if sig.schema.is_some() || !sig.form.is_empty() {
        return None;
    }
    entry_of(sig)
        .filter(|e| !(e.has(COMPARES) && sig.args.iter().any(Type::is_padded)))
        .and_then(|e| e.row.value)
}

/// Computes the rows of a call with a column definition list from the evaluated arguments. No argument is
/// NULL.
pub(crate) type Recordset = fn(&[Datum], &FuncSig) -> Result<Datum>;

/// Returns the code that computes the rows of a call with a column definition list. Returns `None` if the
/// function is opaque.
pub(crate) fn recordset(sig: &FuncSig) -> Option<Recordset> {
    (sig.schema.is_none() && &*sig.name == "jsonb_to_recordset").then_some(values::sets::records as Recordset)
}

/// The built-in STABLE functions of PostgreSQL that read no more than settings and the definitions of types,
/// and whose stable signatures the table of functions lacks. Casts that are written as functions are
/// included.
const OF_SETTINGS: &[&str] = &[
    "anytextcat",
    "array_to_json",
    "convert",
    "convert_from",
    "convert_to",
    "date",
    "date_add",
    "date_subtract",
    "enum_first",
    "enum_last",
    "enum_range",
    "get_current_ts_config",
    "getdatabaseencoding",
    "interval_pl_timestamptz",
    "json_populate_record",
    "json_populate_recordset",
    "json_to_record",
    "json_to_recordset",
    "json_to_tsvector",
    "jsonb_path_exists_tz",
    "jsonb_path_match_tz",
    "jsonb_path_query_array_tz",
    "jsonb_path_query_first_tz",
    "jsonb_path_query_tz",
    "jsonb_populate_record",
    "jsonb_populate_record_valid",
    "jsonb_populate_recordset",
    "jsonb_to_record",
    "jsonb_to_recordset",
    "jsonb_to_tsvector",
    "length",
    "make_timestamptz",
    "money",
    "numeric",
    "pg_char_to_encoding",
    "pg_collation_for",
    "pg_encoding_to_char",
    "pg_input_error_info",
    "pg_input_is_valid",
    "phraseto_tsquery",
    "plainto_tsquery",
    "quote_literal",
    "quote_nullable",
    "textanycat",
    "time",
    "timestamp",
    "timestamptz",
    "timestamptz_mi_interval",
    "timestamptz_pl_interval",
    "timetz",
    "timezone",
    "to_tsquery",
    "to_tsvector",
    "ts_headline",
    "ts_match_tq",
    "ts_match_tt",
    "ts_parse",
    "ts_token_type",
    "websearch_to_tsquery",
    "xml",
    "xml_is_well_formed",
];

/// Whether a built-in STABLE function or operator of PostgreSQL reads no more than settings. Each refresh
/// gives these settings the values that they had at the creation of the stream table. `age` with one argument
/// reads the current date, so it is excluded.
pub fn reads_settings_alone(sig: &FuncSig) -> bool {
    if sig.is_operator() {
        // The operator turns a text into a tsvector under `default_text_search_config`.
        return sig.schema.as_deref() == Some("pg_catalog") && &*sig.name == "@@";
    }
    let listed = || entry_of(sig).is_some() || OF_SETTINGS.contains(&&*sig.name);
    sig.schema.is_none() && !(&*sig.name == "age" && sig.args.len() == 1) && listed()
}

/// Returns the name and `arguments -> result` of every built-in function, for reference documentation.
pub fn signatures() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAMILIES.iter().copied().flatten().map(|r| (r.name, r.types))
}

#[cfg(test)]
mod tests;
