"""The coordinator's side: enrolment, rounds with remote sites, validation of updates, audit logs."""
