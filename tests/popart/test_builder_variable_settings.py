"""Tests PopART's groups of replicas that share a variable."""

from __future__ import annotations

import pytest

from popgraph.builder.opset.enums import CommGroup, CommGroupType, VariableRetrievalMode
from popgraph.popart.api.variable_settings import ReplicaGrouping, VariableSettings
from popgraph.popart.exceptions import popart_exception, popart_internal_exception

ALL = VariableRetrievalMode.AllReplicas
GROUPS: list[tuple[VariableSettings, list[list[int]]]] = [
    (VariableSettings(), [[0, 1, 2, 3, 4, 5, 6, 7]]),
    (
        VariableSettings(CommGroup(CommGroupType.Consecutive, 4)),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    (
        VariableSettings(CommGroup(CommGroupType.Orthogonal, 4)),
        [[0, 2, 4, 6], [1, 3, 5, 7]],
    ),
    (VariableSettings(CommGroup(CommGroupType.Ungrouped, 0)), [[n] for n in range(8)]),
    (VariableSettings(2, 2), [[0, 2], [1, 3], [4, 6], [5, 7]]),
    (VariableSettings(4, 2, ALL), [[0, 4], [1, 5], [2, 6], [3, 7]]),
    (VariableSettings(stride=3, groupSize=1), [[n] for n in range(8)]),
]


@pytest.mark.parametrize(("settings", "groups"), GROUPS)
def test_groups_of_eight_replicas(settings: VariableSettings, groups: list[list[int]]) -> None:
    assert settings.groups(8) == groups
    assert settings.getGroupCount(8) == settings.groupCount(8) == len(groups)
    assert settings.getRealGroupSize(8) == len(groups[0])
    assert [settings.getGroupRepresentative(n) for n in range(len(groups))] == [
        group[0] for group in groups
    ]
    returned = 8 if settings.getRetrievalMode() is ALL else len(groups)
    assert settings.numReplicasReturningVariable(8) == returned


@pytest.mark.parametrize(("settings", "groups"), GROUPS)
def test_a_host_array_has_a_slice_for_each_group(
    settings: VariableSettings, groups: list[list[int]]
) -> None:
    whole = [5, 3] if len(groups) == 1 else [len(groups), 5, 3]
    assert settings.shapeOnHost([5, 3], 8) == whole
    assert settings.shapeOnReplica(whole, 8, "w") == [5, 3]


def test_an_array_of_another_number_of_groups_is_refused() -> None:
    settings = VariableSettings(CommGroup(CommGroupType.Consecutive, 2))
    with pytest.raises(popart_internal_exception, match="should match numGroups: 4"):
        settings.shapeOnReplica([5, 3], 8, "w")


def test_settings_keep_their_arguments() -> None:
    domain = CommGroup(CommGroupType.Consecutive, 2)
    settings = VariableSettings(domain, ALL)
    assert settings.isUsingCommGroup()
    assert settings.getSharedVariableDomain() == domain
    assert settings.getCommGroupType() is CommGroupType.Consecutive
    assert (settings.getGroupSize(), settings.getRetrievalMode()) == (2, ALL)
    assert VariableSettings(ALL).getRetrievalMode() is ALL
    assert settings == VariableSettings(sharedVariableDomain_=domain, retrievalMode_=ALL)
    numbered = VariableSettings(2, 4)
    assert (numbered.getStride(), numbered.getGroupSize()) == (2, 4)
    assert numbered.getReplicaGrouping(8) == ReplicaGrouping(8, 2, 4)
    assert not numbered.isUsingCommGroup()
    with pytest.raises(popart_exception, match="were not initialised using a `popart::CommGroup`"):
        numbered.getSharedVariableDomain()


def test_groups_without_members_are_refused() -> None:
    with pytest.raises(popart_internal_exception, match="VariableSettings had 1 errors!"):
        VariableSettings(CommGroup(CommGroupType.Orthogonal, 0))
    with pytest.raises(popart_exception, match="stride in a `popart::VariableSettings` must be"):
        VariableSettings(0, 2)
    with pytest.raises(popart_exception, match="must be divisible by the product"):
        VariableSettings(2, 3).groups(8)
    with pytest.raises(TypeError):
        VariableSettings(2)
