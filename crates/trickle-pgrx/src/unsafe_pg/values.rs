//! Conversion of values to and from the server's executor.

use pgrx::{FromDatum, IntoDatum, JsonB, pg_sys};
use std::ffi::{CStr, c_char};
use trickle_engine::db::{Cell, Param, Row, Rows};

/// The parameters of a statement, as the executor takes them.
pub(super) struct Values {
    pub(super) types: Vec<pg_sys::Oid>,
    pub(super) values: Vec<pg_sys::Datum>,
    /// A blank for each value, or `n` if the value is NULL.
    pub(super) nulls: Vec<c_char>,
}

impl Values {
    pub(super) fn of(params: &[Param<'_>]) -> Values {
        let mut all = Values { types: Vec::new(), values: Vec::new(), nulls: Vec::new() };
        for p in params {
            let (ty, value) = datum(p);
            all.types.push(ty);
            all.nulls.push(if value.is_some() { b' ' as c_char } else { b'n' as c_char });
            all.values.push(value.unwrap_or(pg_sys::Datum::null()));
        }
        all
    }
}

/// Converts a parameter; returns its type and its value.
fn datum(param: &Param<'_>) -> (pg_sys::Oid, Option<pg_sys::Datum>) {
    match param {
        Param::Null => (pg_sys::TEXTOID, None),
        Param::Bool(v) => (pg_sys::BOOLOID, v.into_datum()),
        Param::Int2(v) => (pg_sys::INT2OID, v.into_datum()),
        Param::Int4(v) => (pg_sys::INT4OID, v.into_datum()),
        Param::Int8(v) => (pg_sys::INT8OID, v.into_datum()),
        Param::Oid(v) => (pg_sys::OIDOID, v.map(pg_sys::Datum::from)),
        Param::Float8(v) => (pg_sys::FLOAT8OID, v.into_datum()),
        Param::Text(v) => (pg_sys::TEXTOID, v.into_datum()),
        Param::Jsonb(v) => {
            let json = v.as_deref().and_then(|text| serde_json::from_str(text).ok());
            (pg_sys::JSONBOID, json.map(JsonB).into_datum())
        }
        Param::Int8s(v) => (pg_sys::INT8ARRAYOID, v.clone().into_datum()),
        Param::Oids(v) => (pg_sys::OIDARRAYOID, v.as_deref().map(oids)),
        Param::Texts(v) => (pg_sys::TEXTARRAYOID, v.clone().into_datum()),
    }
}

/// Makes an array of oids. The bindings would turn 0 into NULL, but 0 is a valid element: it stands for the
/// collation of a type without collation.
fn oids(all: &[u32]) -> pg_sys::Datum {
    let mut elements: Vec<pg_sys::Datum> = all.iter().copied().map(pg_sys::Datum::from).collect();
    // SAFETY: the list has as many elements as are announced, of a type of four bytes that is passed by
    // value. The server copies the elements.
    let array = unsafe {
        let align = pg_sys::TYPALIGN_INT as std::ffi::c_char;
        pg_sys::construct_array(elements.as_mut_ptr(), elements.len() as i32, pg_sys::OIDOID, 4, true, align)
    };
    pg_sys::Datum::from(array)
}

/// Names and types of columns.
pub(super) type Columns = Vec<(String, u32)>;

/// Returns the rows of the executor's last statement, and their columns.
///
/// # Safety
/// The executor must just have run a statement.
pub(super) unsafe fn fetched() -> (Rows, Columns) {
    // SAFETY: a statement was run.
    let mut rows = Rows { rows: Vec::new(), affected: unsafe { pg_sys::SPI_processed } };
    let mut columns = Vec::new();
    // SAFETY: the table, its description and its rows belong to the executor, and live until the table is
    // freed below.
    unsafe {
        let table = pg_sys::SPI_tuptable;
        if table.is_null() {
            return (rows, columns);
        }
        let desc = (*table).tupdesc;
        for i in 1..=(*desc).natts {
            columns.push((name_of(desc, i), pg_sys::SPI_gettypeid(desc, i).to_u32()));
        }
        for r in 0..rows.affected as usize {
            let tuple = *(*table).vals.add(r);
            let cells = (1..=(*desc).natts).map(|i| {
                let mut null = false;
                let value = pg_sys::SPI_getbinval(tuple, desc, i, &mut null);
                if null { Cell::Null } else { cell(value, pg_sys::SPI_gettypeid(desc, i)) }
            });
            rows.rows.push(Row::new(cells.collect()));
        }
        pg_sys::SPI_freetuptable(table);
    }
    (rows, columns)
}

/// # Safety
/// The description must have a column `i`, from 1.
unsafe fn name_of(desc: pg_sys::TupleDesc, i: i32) -> String {
    // SAFETY: the executor gives a copy of the name.
    unsafe { CStr::from_ptr(pg_sys::SPI_fname(desc, i)) }.to_string_lossy().into_owned()
}

/// Reads a value of a type.
///
/// # Safety
/// The datum must be a value of that type, and not NULL.
unsafe fn cell(value: pg_sys::Datum, ty: pg_sys::Oid) -> Cell {
    // SAFETY: each value is read as its type.
    unsafe {
        match ty {
            pg_sys::BOOLOID => Cell::Bool(value.value() != 0),
            pg_sys::INT2OID => Cell::Int2(value.value() as i16),
            pg_sys::INT4OID => Cell::Int4(value.value() as i32),
            pg_sys::INT8OID => Cell::Int8(value.value() as i64),
            pg_sys::OIDOID => Cell::Oid(value.value() as u32),
            pg_sys::FLOAT4OID => f32::from_datum(value, false).map_or(Cell::Null, |x| Cell::Float8(x.into())),
            pg_sys::FLOAT8OID => f64::from_datum(value, false).map_or(Cell::Null, Cell::Float8),
            pg_sys::JSONOID | pg_sys::JSONBOID => Cell::Json(printed(value, ty)),
            _ => match pg_sys::get_element_type(ty) {
                pg_sys::InvalidOid => Cell::Text(printed(value, ty)),
                element => Cell::Array(elements(value, element)),
            },
        }
    }
}

/// # Safety
/// The datum must be an array of that element type.
unsafe fn elements(value: pg_sys::Datum, element: pg_sys::Oid) -> Vec<Cell> {
    let (mut length, mut by_value, mut align) = (0i16, false, 0 as c_char);
    let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0i32);
    // SAFETY: the server fills all of these variables for the array, and copies the array if it is packed.
    unsafe {
        pg_sys::get_typlenbyvalalign(element, &mut length, &mut by_value, &mut align);
        let array = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        pg_sys::deconstruct_array(
            array,
            element,
            i32::from(length),
            by_value,
            align,
            &mut values,
            &mut nulls,
            &mut count,
        );
        (0..count as usize)
            .map(|i| if *nulls.add(i) { Cell::Null } else { cell(*values.add(i), element) })
            .collect()
    }
}

/// Prints a value as the server writes it.
///
/// # Safety
/// The datum must be a value of that type, and not NULL.
unsafe fn printed(value: pg_sys::Datum, ty: pg_sys::Oid) -> String {
    let (mut output, mut packed) = (pg_sys::InvalidOid, false);
    // SAFETY: every type has an output function, whose result is a C string.
    unsafe {
        pg_sys::getTypeOutputInfo(ty, &mut output, &mut packed);
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, value)).to_string_lossy().into_owned()
    }
}
