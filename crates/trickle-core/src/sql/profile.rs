//! The capabilities of a server, as data. A capability only decides between SQL texts of equal meaning.

use serde::{Deserialize, Serialize};

/// The capabilities of a server on which texts depend. No capability affects results.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// Whether the server has `WITH x AS [NOT] MATERIALIZED` (since 12).
    pub(crate) cte_materialized: bool,
}

impl Profile {
    /// Returns the profile of PostgreSQL with this major version, which is `server_version_num` divided by
    /// 10,000.
    pub fn postgres(major: u32) -> Profile {
        Profile { cte_materialized: major >= 12 }
    }
}

impl Default for Profile {
    /// Returns the profile of the oldest PostgreSQL that trickle supports. Texts for this version run on
    /// every later version.
    fn default() -> Profile {
        Profile::postgres(15)
    }
}
