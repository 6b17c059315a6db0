//! Function and operator signatures. The engine must know these properties of a function before a plan can
//! contain calls of the function.

use super::FormPiece;
use crate::types::Type;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Whether and when the result of a function may change while its arguments stay the same (PostgreSQL manual,
/// "Function Volatility").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Volatility {
    /// The result never changes.
    Immutable,
    /// The result may change between statements, or with settings.
    Stable,
    /// The result may change at any time.
    Volatile,
}

crate::vocabulary::words! {
    impl Volatility: "volatility" {
        Immutable = "i",
        Stable = "s",
        Volatile = "v",
    }
}

/// The kind of a function, which also determines the syntax of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FuncKind {
    /// `f(a, b)`
    Scalar,
    /// `a op b`, or `op a` for an operator of one argument
    Operator,
    /// An aggregate.
    Aggregate,
    /// A window function that is not an aggregate.
    Window,
    /// A function that returns a set of rows.
    SetReturning,
    /// `(a).name`: a field of a composite value.
    Field,
    /// A row whose fields have the names in [`FuncSig::columns`].
    Row,
}

/// The resolved signature of a function or operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FuncSig {
    /// The schema that is printed before the name. `None` for functions in `pg_catalog`.
    pub schema: Option<Arc<str>>,
    /// The name of the function, unquoted. For an operator, the name is its symbol.
    pub name: Arc<str>,
    /// The kind of the function, which also determines the syntax of a call.
    pub kind: FuncKind,
    /// The argument types that the function declares.
    pub args: Vec<Type>,
    /// The return type. For a function that returns rows of several columns, the type is a [`Type::Record`]
    /// of the columns' types.
    pub ret: Type,
    /// The names of the function's columns in FROM. The list is empty for a function with one column, which
    /// has the name of the function.
    #[serde(default)]
    pub columns: Vec<Arc<str>>,
    /// The text of a call that has a special grammar. Empty for all other calls.
    #[serde(default)]
    pub form: Vec<FormPiece>,
    /// The volatility of the function.
    pub volatility: Volatility,
    /// Whether the result is NULL if any argument is NULL; the function is then not called.
    pub strict: bool,
    /// Whether the result is never NULL when no argument is NULL.
    pub never_null: bool,
    /// Whether a call can raise an error.
    pub raises: bool,
}

/// Hashes only the name and the argument types, since these tell most functions apart.
impl Hash for FuncSig {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.args.hash(state);
    }
}

impl FuncSig {
    /// Makes a comparison operator (`=`, `<>`, `<`, `<=`, `>`, `>=`): immutable, strict, never raises an
    /// error.
    pub(crate) fn comparison(op: &str, left: Type, right: Type) -> Arc<FuncSig> {
        Arc::new(FuncSig {
            schema: None,
            name: Arc::from(op),
            kind: FuncKind::Operator,
            args: vec![left, right],
            ret: Type::Bool,
            columns: Vec::new(),
            form: Vec::new(),
            volatility: Volatility::Immutable,
            strict: true,
            never_null: true,
            raises: false,
        })
    }

    /// Makes an immutable, strict operator that can raise an error, such as `+`.
    pub(crate) fn operator(op: &str, args: Vec<Type>, ret: Type) -> Arc<FuncSig> {
        Arc::new(FuncSig {
            schema: None,
            name: Arc::from(op),
            kind: FuncKind::Operator,
            args,
            ret,
            columns: Vec::new(),
            form: Vec::new(),
            volatility: Volatility::Immutable,
            strict: true,
            never_null: true,
            raises: true,
        })
    }

    /// Makes the signature that returns a field of a composite value. The value has type `of`, and its field
    /// `name` has type `ret`.
    pub(crate) fn field(name: &str, of: Type, ret: Type) -> Arc<FuncSig> {
        let kind = FuncKind::Field;
        let sig = FuncSig::unknown(None, name, vec![of], ret);
        let volatility = Volatility::Immutable;
        Arc::new(FuncSig { kind, volatility, strict: true, raises: false, ..sig })
    }

    /// Makes the signature of a row whose fields have the names `columns` and the types `args`.
    pub(crate) fn row(columns: Vec<Arc<str>>, args: Vec<Type>) -> Arc<FuncSig> {
        let ret = Type::Record(args.clone().into());
        let sig = FuncSig::unknown(None, "row", args, ret);
        let (kind, volatility) = (FuncKind::Row, Volatility::Immutable);
        Arc::new(FuncSig { kind, columns, volatility, never_null: true, raises: false, ..sig })
    }

    /// Makes the signature of a function of which only the types are known: volatile, not strict, can raise
    /// an error.
    pub(crate) fn unknown(schema: Option<&str>, name: &str, args: Vec<Type>, ret: Type) -> FuncSig {
        FuncSig {
            schema: schema.map(Arc::from),
            name: Arc::from(name),
            kind: FuncKind::Scalar,
            args,
            ret,
            columns: Vec::new(),
            form: Vec::new(),
            volatility: Volatility::Volatile,
            strict: false,
            never_null: false,
            raises: true,
        }
    }

    /// Whether the last argument of a call is an array with the word VARIADIC before it.
    pub(crate) fn is_variadic(&self) -> bool {
        self.form.iter().any(|piece| matches!(piece, FormPiece::Word(word) if &**word == "VARIADIC"))
    }

    /// Whether the function is written as a symbol.
    pub fn is_operator(&self) -> bool {
        self.kind == FuncKind::Operator
    }

    /// Whether the function is a comparison operator that is built into the engine.
    pub(crate) fn is_comparison(&self) -> bool {
        let symbol = matches!(&*self.name, "=" | "<>" | "<" | "<=" | ">" | ">=");
        symbol && self.is_operator() && self.args.len() == 2 && self.schema.is_none()
    }

    /// Whether the function is the built-in `=`.
    pub(crate) fn is_equality(&self) -> bool {
        self.is_operator() && &*self.name == "=" && self.args.len() == 2 && self.schema.is_none()
    }
}
