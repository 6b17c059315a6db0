//! The type of images: texts that are equal only if they are identical byte for byte.

use super::{OtherType, Type};
use std::sync::{Arc, LazyLock};

/// A `text` type whose equal values are always identical.
pub(crate) static WRITTEN: LazyLock<Type> = LazyLock::new(|| {
    Type::Other(Arc::new(OtherType {
        sql_name: "text COLLATE \"C\"".to_owned(),
        equality: true,
        hashable: true,
        ordered: true,
        exact: true,
    }))
});

/// Whether the type is [`WRITTEN`], the type of images.
pub(crate) fn is_written(ty: &Type) -> bool {
    matches!(ty, Type::Other(_)) && *ty == *WRITTEN
}
