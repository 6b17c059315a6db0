//! Values that are bound to the parameters of statements.

use super::cell::Json;
use serde::Serialize;

/// A value with its type, or a NULL with or without a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Param<'v> {
    /// A NULL whose type the server infers from the statement.
    Null,
    /// `boolean`
    Bool(Option<bool>),
    /// `smallint`
    Int2(Option<i16>),
    /// `integer`
    Int4(Option<i32>),
    /// `bigint`
    Int8(Option<i64>),
    /// `oid`
    Oid(Option<u32>),
    /// `double precision`
    Float8(Option<f64>),
    /// `text`
    Text(Option<&'v str>),
    /// `jsonb`, as JSON text.
    Jsonb(Option<String>),
    /// `bigint[]`
    Int8s(Option<Vec<i64>>),
    /// `oid[]`
    Oids(Option<Vec<u32>>),
    /// `text[]`
    Texts(Option<Vec<Option<&'v str>>>),
}

/// A type whose values can be bound to parameters.
pub trait Bind {
    /// Returns the value with its type.
    fn bind(&self) -> Param<'_>;
}

/// A type whose NULL can be bound to parameters.
pub trait Nullable: Bind {
    /// The NULL of the type.
    const NULL: Param<'static>;
}

macro_rules! bind {
    ($($Type:ty => $Variant:ident, |$v:ident| $bound:expr;)*) => { $(
        impl Bind for $Type {
            fn bind(&self) -> Param<'_> {
                let $v = self;
                Param::$Variant(Some($bound))
            }
        }
        impl Nullable for $Type {
            const NULL: Param<'static> = Param::$Variant(None);
        }
    )* };
}

bind! {
    bool => Bool, |v| *v;
    i16 => Int2, |v| *v;
    i32 => Int4, |v| *v;
    i64 => Int8, |v| *v;
    u32 => Oid, |v| *v;
    f64 => Float8, |v| *v;
    str => Text, |v| v;
    String => Text, |v| v;
    [i64] => Int8s, |v| v.to_vec();
    Vec<i64> => Int8s, |v| v.clone();
    [u32] => Oids, |v| v.to_vec();
    Vec<u32> => Oids, |v| v.clone();
    Vec<&str> => Texts, |v| v.iter().map(|s| Some(*s)).collect();
    Vec<String> => Texts, |v| v.iter().map(|s| Some(s.as_str())).collect();
    [String] => Texts, |v| v.iter().map(|s| Some(s.as_str())).collect();
    Vec<Option<String>> => Texts, |v| v.iter().map(Option::as_deref).collect();
    Vec<Option<&str>> => Texts, |v| v.clone();
}

impl<T: Bind + ?Sized> Bind for &T {
    fn bind(&self) -> Param<'_> {
        (**self).bind()
    }
}

impl<T: Nullable + ?Sized> Nullable for &T {
    const NULL: Param<'static> = T::NULL;
}

impl<T: Nullable> Bind for Option<T> {
    fn bind(&self) -> Param<'_> {
        self.as_ref().map_or(T::NULL, Bind::bind)
    }
}

/// A value that cannot be serialized as JSON is bound as NULL. Every value that trickle binds can be
/// serialized.
impl<T: Serialize> Bind for Json<T> {
    fn bind(&self) -> Param<'_> {
        Param::Jsonb(serde_json::to_string(&self.0).ok())
    }
}

impl<T: Serialize> Nullable for Json<T> {
    const NULL: Param<'static> = Param::Jsonb(None);
}

impl Bind for trickle_core::refresh::Value {
    fn bind(&self) -> Param<'_> {
        use trickle_core::refresh::Value;
        match self {
            // PostgreSQL gives an untyped NULL the type that the statement needs at that parameter.
            Value::Null => Param::Null,
            Value::Bool(b) => Param::Bool(Some(*b)),
            Value::Int8(n) => Param::Int8(Some(*n)),
            Value::Float8(x) => Param::Float8(Some(*x)),
            Value::Text(s) => Param::Text(Some(s)),
        }
    }
}
