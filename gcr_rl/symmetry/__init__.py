"""Transforms of observations and relabellings of actions: operators, groups, enforcement.

Never imports the order room, agents or training.
"""

from gcr_rl.symmetry.certificate import CertificateSettings
from gcr_rl.symmetry.closure import Closed, ClosureStats, close_group
from gcr_rl.symmetry.discovery import PARTS, Discovery, discover
from gcr_rl.symmetry.enforcement import (
    InForce,
    check_all,
    enforce,
    evidence_of,
    evidence_size,
    groups_in_force,
    latest_rows,
    seed_axes,
)
from gcr_rl.symmetry.folding import LinearFirst
from gcr_rl.symmetry.group import (
    Group,
    bucket_level,
    buckets,
    composition,
    describe,
    from_elements,
    generate,
    trivial_group,
)
from gcr_rl.symmetry.operators import (
    nearest_permutation,
    newton_schulz,
    permutation_entropy,
    permutation_matrix,
    polar,
    procrustes,
    sinkhorn,
)
from gcr_rl.symmetry.quotient import (
    bucketed,
    canonical_member,
    class_ids,
    equivariance_loss,
    normalised_equivariance,
    orbit_ids,
    quotient,
    reynolds,
    transform_transitions,
)
from gcr_rl.symmetry.recovered import RecoveredGroup, recovered
from gcr_rl.symmetry.sample import Evidence
from gcr_rl.symmetry.sorting import SortingGroup, sorting_group, sorting_quotient
from gcr_rl.symmetry.vocabulary import Vocabulary
from gcr_rl.symmetry.watch import (
    Schedule,
    Standing,
    Window,
    check,
    due,
    init_standing,
    init_window,
    record,
    standing_data,
    standing_from,
)

__all__ = [
    "PARTS",
    "CertificateSettings",
    "Closed",
    "ClosureStats",
    "Discovery",
    "Evidence",
    "Group",
    "InForce",
    "LinearFirst",
    "RecoveredGroup",
    "Schedule",
    "SortingGroup",
    "Standing",
    "Vocabulary",
    "Window",
    "bucket_level",
    "bucketed",
    "buckets",
    "canonical_member",
    "check",
    "check_all",
    "class_ids",
    "close_group",
    "composition",
    "describe",
    "discover",
    "due",
    "enforce",
    "equivariance_loss",
    "evidence_of",
    "evidence_size",
    "from_elements",
    "generate",
    "groups_in_force",
    "init_standing",
    "init_window",
    "latest_rows",
    "nearest_permutation",
    "newton_schulz",
    "normalised_equivariance",
    "orbit_ids",
    "permutation_entropy",
    "permutation_matrix",
    "polar",
    "procrustes",
    "quotient",
    "record",
    "recovered",
    "reynolds",
    "seed_axes",
    "sinkhorn",
    "sorting_group",
    "sorting_quotient",
    "standing_data",
    "standing_from",
    "transform_transitions",
    "trivial_group",
]
