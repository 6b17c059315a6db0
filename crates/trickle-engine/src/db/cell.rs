//! Rows of results, and the Rust types that their values are read as.

use serde::de::DeserializeOwned;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The value NULL.
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`
    Int2(i16),
    /// `integer`
    Int4(i32),
    /// `bigint`
    Int8(i64),
    /// `oid`
    Oid(u32),
    /// `real` and `double precision`
    Float8(f64),
    /// `text`, `name` and similar types.
    Text(String),
    /// `json` and `jsonb`
    Json(String),
    /// An array of one dimension.
    Array(Vec<Cell>),
}

impl Cell {
    /// Returns the name of the value's type, for messages.
    fn what(&self) -> &'static str {
        match self {
            Cell::Null => "NULL",
            Cell::Bool(_) => "boolean",
            Cell::Int2(_) => "smallint",
            Cell::Int4(_) => "integer",
            Cell::Int8(_) => "bigint",
            Cell::Oid(_) => "oid",
            Cell::Float8(_) => "double precision",
            Cell::Text(_) => "text",
            Cell::Json(_) => "jsonb",
            Cell::Array(_) => "array",
        }
    }
}

/// A row of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(Vec<Cell>);

impl Row {
    /// Makes a row of these values.
    pub fn new(cells: Vec<Cell>) -> Row {
        Row(cells)
    }

    /// Returns the values of the row.
    pub fn cells(&self) -> &[Cell] {
        &self.0
    }

    /// Returns the value of column `i`.
    ///
    /// # Panics
    /// The value has another type than `T`. The text of the statement decides the type, and a test runs each
    /// such text.
    #[expect(
        clippy::panic,
        reason = "what a text asks for and what is taken of its answer stand side by side"
    )]
    pub fn get<'r, T: FromCell<'r>>(&'r self, i: usize) -> T {
        let cell = self.0.get(i).unwrap_or(&Cell::Null);
        T::from_cell(cell).unwrap_or_else(|| {
            panic!("column {i} is {}, and was taken for {}", cell.what(), std::any::type_name::<T>())
        })
    }
}

/// A type that a value of a row can be read as.
pub trait FromCell<'r>: Sized {
    /// Reads a value; returns `None` where the value has another type.
    fn from_cell(cell: &'r Cell) -> Option<Self>;
}

macro_rules! from_cell {
    ($($Type:ty: $Variant:ident;)*) => { $(
        impl FromCell<'_> for $Type {
            fn from_cell(cell: &Cell) -> Option<Self> {
                match cell {
                    Cell::$Variant(v) => Some(v.clone()),
                    _ => None,
                }
            }
        }
    )* };
}

from_cell! {
    bool: Bool;
    i16: Int2;
    i32: Int4;
    i64: Int8;
    u32: Oid;
    f64: Float8;
    String: Text;
}

impl<'r> FromCell<'r> for &'r str {
    fn from_cell(cell: &'r Cell) -> Option<Self> {
        match cell {
            Cell::Text(s) => Some(s),
            _ => None,
        }
    }
}

impl<'r, T: FromCell<'r>> FromCell<'r> for Option<T> {
    fn from_cell(cell: &'r Cell) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

impl<'r, T: FromCell<'r>> FromCell<'r> for Vec<T> {
    fn from_cell(cell: &'r Cell) -> Option<Self> {
        match cell {
            Cell::Array(all) => all.iter().map(T::from_cell).collect(),
            _ => None,
        }
    }
}

/// A value that is stored as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromCell<'_> for Json<T> {
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Json(text) => serde_json::from_str(text).ok().map(Json),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Json, Row};

    #[test]
    fn values_are_taken_for_what_they_are() {
        let row = Row::new(vec![
            Cell::Int8(7),
            Cell::Null,
            Cell::Array(vec![Cell::Text("a".into()), Cell::Null]),
            Cell::Json("[1, 2]".into()),
        ]);
        assert_eq!(row.get::<i64>(0), 7);
        assert_eq!(row.get::<Option<&str>>(1), None);
        assert_eq!(row.get::<Vec<Option<String>>>(2), [Some("a".to_owned()), None]);
        assert_eq!(row.get::<Json<Vec<i32>>>(3), Json(vec![1, 2]));
    }

    #[test]
    #[should_panic(expected = "column 0 is bigint")]
    fn a_value_is_taken_for_nothing_else() {
        Row::new(vec![Cell::Int8(7)]).get::<i32>(0);
    }
}
