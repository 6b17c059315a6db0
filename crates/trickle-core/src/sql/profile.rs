//! The capabilities of a server, as data. A capability only decides between SQL texts of equal meaning.

use serde::{Deserialize, Serialize};

/// The version of a server, and its capabilities. No capability affects results.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// The major version, which is `server_version_num` divided by 10,000.
    pub major: u32,
    /// Whether the server has `MERGE` (since 15).
    pub merge: bool,
    /// Whether the server has `MERGE … RETURNING` and `WHEN NOT MATCHED BY SOURCE` (since 17).
    pub merge_returning: bool,
    /// Whether the server has `RETURNING old.*, new.*` (since 18).
    pub returning_old_new: bool,
    /// Whether the server has `WITH x AS [NOT] MATERIALIZED` (since 12).
    pub cte_materialized: bool,
    /// Whether the server has `UNIQUE NULLS NOT DISTINCT` (since 15).
    pub nulls_not_distinct: bool,
    /// Whether the server has statement triggers with transition tables (since 10).
    pub statement_triggers: bool,
    /// Whether the server distributes the rows of a table over nodes, by a key that the table declares.
    pub distribution_key: bool,
}

impl Profile {
    /// Returns the profile of PostgreSQL with this major version.
    pub fn postgres(major: u32) -> Profile {
        Profile {
            major,
            merge: major >= 15,
            merge_returning: major >= 17,
            returning_old_new: major >= 18,
            cte_materialized: major >= 12,
            nulls_not_distinct: major >= 15,
            statement_triggers: major >= 10,
            distribution_key: false,
        }
    }
}

impl Default for Profile {
    /// Returns the profile of the oldest PostgreSQL that trickle supports. Texts for this version run on
    /// every later version.
    fn default() -> Profile {
        Profile::postgres(15)
    }
}
