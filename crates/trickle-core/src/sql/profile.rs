//! The capabilities of a server, as data. They choose among texts of equal meaning.

use serde::{Deserialize, Serialize};

/// A server's version and capabilities. A capability only chooses between texts that mean the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// The major version: `server_version_num` divided by 10,000.
    pub major: u32,
    /// `MERGE` (15).
    pub merge: bool,
    /// `MERGE … RETURNING` and `WHEN NOT MATCHED BY SOURCE` (17).
    pub merge_returning: bool,
    /// `RETURNING old.*, new.*` (18).
    pub returning_old_new: bool,
    /// `WITH x AS [NOT] MATERIALIZED` (12).
    pub cte_materialized: bool,
    /// `UNIQUE NULLS NOT DISTINCT` (15).
    pub nulls_not_distinct: bool,
    /// Statement triggers with transition tables (10).
    pub statement_triggers: bool,
    /// Whether tables are spread over nodes by a declared key.
    pub distribution_key: bool,
}

impl Profile {
    /// Returns the profile of PostgreSQL in this major version.
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
    /// Returns the profile of the oldest supported PostgreSQL, whose texts run on every later one.
    fn default() -> Profile {
        Profile::postgres(15)
    }
}
