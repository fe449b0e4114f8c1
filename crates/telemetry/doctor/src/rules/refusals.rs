//! Callers refused before their call was dispatched.

use crate::finding::Finding;
use crate::snapshot::Snapshot;
use events::Refusal;

/// Reports callers refused in the last ten minutes because of their ticket, or because they had none.
pub(crate) fn refused(snapshot: &Snapshot) -> Vec<Finding> {
    let recent = snapshot.now.refusals.0.iter().filter(|(_, row)| row.hosts > 0);
    let says = recent.filter_map(|(labels, row)| {
        let reason = labels.join(" ");
        let remedy = Refusal::of_name(&reason)?.remedy()?;
        Some(format!(
            "{reason}: {} since the start, {} hosts in the last 10 minutes; {remedy}",
            row.refused, row.hosts
        ))
    });
    let evidence: Vec<String> = says.collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "refused-callers",
        weight: 41,
        what: "Callers are refused before their call is decoded.".into(),
        evidence,
        cause: "Their tickets, the server's keys, the clocks or `[security]` do not match. Users see an \
            error number at best, or only have the rights of anonymous callers."
            .into(),
        remedy: "Apply the remedy shown with each reason. The server's log has a line with details for each \
            host and reason."
            .into(),
    }]
}
