//! Learned figures as read from the database, for people and for other machines: each policy's incumbent weights, and
//! the newest rates of each replica.

use crate::read::HistoryReader;
use crate::{StoreError, sql};

/// Weights of a policy that were accepted last, or else the initial ones.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredWeights {
    /// Name of the policy.
    pub policy: String,
    /// Digest of the policy's text.
    pub sha256: String,
    /// Generation of the weights; 0 means as configured.
    pub generation: u64,
    /// Term and weight, in slot order.
    pub terms: Vec<(String, f64)>,
}

/// Learned rate.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRate {
    /// Name of the replica.
    pub replica: String,
    /// Kind of rate, an entry of `rate_kinds`.
    pub kind: String,
    /// Value, ms per unit.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end of that interval.
    pub high: Option<f64>,
    /// Number of samples.
    pub samples: u64,
}

impl HistoryReader {
    /// Reads the weights of the newest build of every policy that ever had any, by name.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn incumbents(&self) -> Result<Vec<StoredWeights>, StoreError> {
        let rows =
            sqlx::query(sql::READ_INCUMBENTS).fetch_all(self.pool()).await.map_err(|cause| self.failed(cause))?;
        let mut found: Vec<StoredWeights> = Vec::new();
        // One row per term, sorted by policy: a new name begins the next policy.
        for row in &rows {
            let (policy, term): (String, (String, f64)) = (self.get(row, 0)?, (self.get(row, 3)?, self.get(row, 4)?));
            // Digest and generation are the same in each row of a policy.
            match found.last_mut().filter(|last| last.policy == policy) {
                Some(last) => last.terms.push(term),
                None => found.push(StoredWeights {
                    policy,
                    sha256: self.get(row, 1)?,
                    generation: self.get::<i64>(row, 2)?.cast_unsigned(),
                    terms: vec![term],
                }),
            }
        }
        Ok(found)
    }

    /// Reads the newest rate of each kind of each replica, by name.
    ///
    /// # Errors
    /// As [`HistoryReader::decisions`].
    pub async fn newest_rates(&self) -> Result<Vec<StoredRate>, StoreError> {
        let rows = sqlx::query(sql::READ_NEWEST_RATES).fetch_all(self.pool()).await;
        let rows = rows.map_err(|cause| self.failed(cause))?;
        let rate = |row| {
            Ok(StoredRate {
                replica: self.get(row, 0)?,
                kind: self.get(row, 1)?,
                value: self.get(row, 2)?,
                low: self.get(row, 3)?,
                high: self.get(row, 4)?,
                samples: self.get::<i64>(row, 5)?.cast_unsigned(),
            })
        };
        rows.iter().map(rate).collect()
    }
}
