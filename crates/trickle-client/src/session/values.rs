//! Converts values between the engine and the server.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Json, Kind, ToSql, Type};
use trickle_engine::db::{Cell, Param};

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// Returns the type under which a value is sent.
pub(super) fn type_of(param: &Param<'_>) -> Type {
    match param {
        Param::Null => Type::UNKNOWN,
        Param::Bool(_) => Type::BOOL,
        Param::Int2(_) => Type::INT2,
        Param::Int4(_) => Type::INT4,
        Param::Int8(_) => Type::INT8,
        Param::Oid(_) => Type::OID,
        Param::Float8(_) => Type::FLOAT8,
        Param::Text(_) => Type::TEXT,
        Param::Jsonb(_) => Type::JSONB,
        Param::Int8s(_) => Type::INT8_ARRAY,
        Param::Oids(_) => Type::OID_ARRAY,
        Param::Texts(_) => Type::TEXT_ARRAY,
    }
}

/// A value that is sent to the server.
#[derive(Debug)]
pub(super) struct Outgoing<'p>(pub(super) &'p Param<'p>);

impl ToSql for Outgoing<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        match self.0 {
            Param::Null => Ok(IsNull::Yes),
            Param::Bool(v) => v.to_sql(ty, out),
            Param::Int2(v) => v.to_sql(ty, out),
            Param::Int4(v) => v.to_sql(ty, out),
            Param::Int8(v) => v.to_sql(ty, out),
            Param::Oid(v) => v.to_sql(ty, out),
            Param::Float8(v) => v.to_sql(ty, out),
            Param::Text(v) => v.to_sql(ty, out),
            Param::Jsonb(v) => {
                let json = v.as_deref().map(serde_json::from_str::<serde_json::Value>).transpose()?;
                json.map(Json).to_sql(ty, out)
            }
            Param::Int8s(v) => v.to_sql(ty, out),
            Param::Oids(v) => v.to_sql(ty, out),
            Param::Texts(v) => v.to_sql(ty, out),
        }
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    tokio_postgres::types::to_sql_checked!();
}

/// A value that the server has sent.
pub(super) struct Incoming(pub(super) Cell);

impl<'a> FromSql<'a> for Incoming {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Incoming(match *ty {
            Type::BOOL => Cell::Bool(bool::from_sql(ty, raw)?),
            Type::INT2 => Cell::Int2(i16::from_sql(ty, raw)?),
            Type::INT4 => Cell::Int4(i32::from_sql(ty, raw)?),
            Type::INT8 => Cell::Int8(i64::from_sql(ty, raw)?),
            Type::OID => Cell::Oid(u32::from_sql(ty, raw)?),
            Type::FLOAT4 => Cell::Float8(f32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Cell::Float8(f64::from_sql(ty, raw)?),
            Type::JSON | Type::JSONB => {
                Cell::Json(Json::<serde_json::Value>::from_sql(ty, raw)?.0.to_string())
            }
            _ => match ty.kind() {
                Kind::Array(_) => {
                    let all = Vec::<Option<Incoming>>::from_sql(ty, raw)?;
                    Cell::Array(all.into_iter().map(|c| c.map_or(Cell::Null, |c| c.0)).collect())
                }
                _ => Cell::Text(String::from_sql(ty, raw)?),
            },
        }))
    }
    fn accepts(_: &Type) -> bool {
        true
    }
}
