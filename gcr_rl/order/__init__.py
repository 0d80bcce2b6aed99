"""Orders on values: the greedy DAG, posets, and values that obey them."""

from gcr_rl.order.bounded import BoundedPoset, empty_poset, holds, refine_poset, relation_count
from gcr_rl.order.dag import (
    Dag,
    DagResult,
    dag_loss,
    greedy_dag,
    greedy_dag_by_node,
    greedy_dag_full,
)
from gcr_rl.order.poset import Poset

__all__ = [
    "BoundedPoset",
    "Dag",
    "DagResult",
    "Poset",
    "dag_loss",
    "empty_poset",
    "greedy_dag",
    "greedy_dag_by_node",
    "greedy_dag_full",
    "holds",
    "refine_poset",
    "relation_count",
]
