//! Functions on network addresses. `cidr` casts to `inet` implicitly.

use super::values::network as v;
use super::{OPERATOR, RAISES, Row, f, opaque};

const OP: u16 = OPERATOR | RAISES;

pub(super) const ROWS: &[Row] = &[
    f("<<", "inet, inet -> bool", OPERATOR, v::is_inside),
    f("<<=", "inet, inet -> bool", OPERATOR, v::is_inside_or_equal),
    f(">>", "inet, inet -> bool", OPERATOR, v::contains),
    f(">>=", "inet, inet -> bool", OPERATOR, v::contains_or_equals),
    f("&&", "inet, inet -> bool", OPERATOR, v::overlaps),
    opaque("~", "inet -> inet", OPERATOR),
    opaque("&", "inet, inet -> inet", OP),
    opaque("|", "inet, inet -> inet", OP),
    opaque("+", "inet, int8 -> inet", OP),
    opaque("+", "int8, inet -> inet", OP),
    opaque("-", "inet, int8 -> inet", OP),
    opaque("-", "inet, inet -> int8", OP),
    f("family", "inet -> int4", 0, v::family),
    f("masklen", "inet -> int4", 0, v::length),
    f("host", "inet -> text", 0, v::host),
    opaque("abbrev", "inet -> text", 0),
    opaque("abbrev", "cidr -> text", 0),
    opaque("broadcast", "inet -> inet", 0),
    opaque("hostmask", "inet -> inet", 0),
    opaque("netmask", "inet -> inet", 0),
    opaque("network", "inet -> cidr", 0),
    opaque("set_masklen", "inet, int4 -> inet", RAISES),
    opaque("set_masklen", "cidr, int4 -> cidr", RAISES),
    opaque("inet_same_family", "inet, inet -> bool", 0),
    opaque("inet_merge", "inet, inet -> cidr", RAISES),
];
