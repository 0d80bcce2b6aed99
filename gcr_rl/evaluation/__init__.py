"""From rollouts to records, from records to numbers; no plots."""
