"""Orders on values: the greedy DAG, posets, and values that obey them."""

from gcr_rl.order.bounded import BoundedPoset, empty_poset, holds, refine_poset, relation_count
from gcr_rl.order.dag import (
    Dag,
    DagResult,
    NodeDag,
    dag_loss,
    greedy_dag,
    greedy_dag_by_node,
    greedy_dag_by_node_full,
    greedy_dag_full,
)
from gcr_rl.order.isotonic import Projection, ProjectionStats, Result, project
from gcr_rl.order.poset import Poset
from gcr_rl.order.soft import OrderLosses, soft_project

__all__ = [
    "BoundedPoset",
    "Dag",
    "DagResult",
    "NodeDag",
    "OrderLosses",
    "Poset",
    "Projection",
    "ProjectionStats",
    "Result",
    "dag_loss",
    "empty_poset",
    "greedy_dag",
    "greedy_dag_by_node",
    "greedy_dag_by_node_full",
    "greedy_dag_full",
    "holds",
    "project",
    "refine_poset",
    "relation_count",
    "soft_project",
]
