//! Values of functions on network addresses, which are texts in the evaluator.

use super::{arg, mistyped, text};
use crate::error::Result;
use crate::types::Datum;
use std::net::IpAddr;

/// An address, and the number of leading bits that identify its network.
struct Network {
    address: IpAddr,
    length: u32,
}

impl Network {
    fn of(a: &[Datum], i: usize) -> Result<Network> {
        let text = text(a, i)?;
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, l.parse().ok()));
        let address: IpAddr = address.parse().map_err(|_| mistyped(arg(a, i)))?;
        Ok(Network { address, length: length.unwrap_or(if address.is_ipv4() { 32 } else { 128 }) })
    }

    /// Returns the first `length` bits of the address.
    fn prefix(&self, length: u32) -> u128 {
        let bits = match self.address {
            IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
            IpAddr::V6(a) => a.to_bits(),
        };
        bits.checked_shr(128_u32.saturating_sub(length)).unwrap_or(0)
    }

    /// Whether both addresses are of one family and have the same first `length` bits.
    fn agrees(&self, other: &Network, length: u32) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4() && self.prefix(length) == other.prefix(length)
    }
}

/// Whether the network `inner` is a part of the network `outer`. With `equal`, equal networks count too.
fn inside(a: &[Datum], inner: usize, outer: usize, equal: bool) -> Result<Datum> {
    let (inner, outer) = (Network::of(a, inner)?, Network::of(a, outer)?);
    let longer = inner.length > outer.length || equal && inner.length == outer.length;
    Ok(Datum::Bool(longer && inner.agrees(&outer, outer.length)))
}
pub(crate) fn is_inside(a: &[Datum]) -> Result<Datum> {
    inside(a, 0, 1, false)
}
pub(crate) fn is_inside_or_equal(a: &[Datum]) -> Result<Datum> {
    inside(a, 0, 1, true)
}
pub(crate) fn contains(a: &[Datum]) -> Result<Datum> {
    inside(a, 1, 0, false)
}
pub(crate) fn contains_or_equals(a: &[Datum]) -> Result<Datum> {
    inside(a, 1, 0, true)
}
pub(crate) fn overlaps(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (Network::of(a, 0)?, Network::of(a, 1)?);
    Ok(Datum::Bool(x.agrees(&y, x.length.min(y.length))))
}

pub(crate) fn family(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(if Network::of(a, 0)?.address.is_ipv4() { 4 } else { 6 }))
}
pub(crate) fn length(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(Network::of(a, 0)?.length.into()))
}
pub(crate) fn host(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(Network::of(a, 0)?.address.to_string()))
}
