//! Positions of the parts of a syntax tree.

/// A position in a text: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The extent of a part of a syntax tree in the text: from its first character to the position after its last
/// character. An extent is empty if the position of the part is not known.
///
/// Any two extents are equal, so that equal trees at different positions of texts compare as equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) start: Position,
    pub(crate) end: Position,
}

impl PartialEq for Extent {
    fn eq(&self, _: &Extent) -> bool {
        true
    }
}

impl Extent {
    /// Whether the position is not known.
    fn is_empty(&self) -> bool {
        self.start == Position::default() && self.end == Position::default()
    }

    /// Returns the smallest extent around both.
    pub(crate) fn union(self, other: Extent) -> Extent {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Extent { start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }
}

/// A part of a syntax tree, with its position in the text.
pub(crate) trait Place {
    /// Returns the extent of the part. The extent is empty if the part's position is not known.
    fn extent(&self) -> Extent;
}

impl Place for Extent {
    fn extent(&self) -> Extent {
        *self
    }
}

macro_rules! placed {
    ($($Part:ident),*) => {
        $(impl Place for super::$Part {
            fn extent(&self) -> Extent { self.extent }
        })*
    };
}
placed!(Expr, FromItem, GroupItem, Ident, ObjectName, Query, Select, SetOperation, TableRef, Values, Write);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_place_does_not_widen_an_extent() {
        let at = |column| Position { line: 1, column };
        let part = Extent { start: at(3), end: at(5) };
        for both in [part.union(Extent::default()), Extent::default().union(part)] {
            assert_eq!((both.start, both.end), (at(3), at(5)));
        }
        let wide = part.union(Extent { start: at(1), end: at(4) });
        assert_eq!((wide.start, wide.end), (at(1), at(5)));
    }
}
