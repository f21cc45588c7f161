"""Generated from schemas/openapi/openapi.yaml by go generate ./internal/docs; DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

from .transport import Transport, _part

Accepted = TypedDict("Accepted", {
    "action": str,
    "detail": NotRequired[str],
    "intent": str,
    "verb": NotRequired[str],
})

Action = TypedDict("Action", {
    "actor": NotRequired[str],
    "approvals": NotRequired[list["Approval"]],
    "approvals_needed": NotRequired[int],
    "attempt": int,
    "blast_radius": NotRequired["BlastRadius"],
    "created": str,
    "detail": NotRequired[str],
    "detail_sentence": NotRequired["Sentence"],
    "effect_at": NotRequired[str],
    "id": str,
    "incident": NotRequired[str],
    "kind": str,
    "ladder": NotRequired[list[str]],
    "mode": str,
    "override": NotRequired["Approval"],
    "person": NotRequired[bool],
    "prediction": NotRequired[str],
    "rails": list["Rail"],
    "reason": str,
    "requester": NotRequired[str],
    "rung": int,
    "sent_at": NotRequired[str],
    "sentence": NotRequired["Sentence"],
    "server": str,
    "server_id": NotRequired[str],
    "site": NotRequired[str],
    "stages": NotRequired[list["Stage"]],
    "state": str,
    "target": NotRequired[str],
    "time": str,
    "verified_by": NotRequired[str],
    "verified_sentence": NotRequired["Sentence"],
    "why": str,
    "with": NotRequired[dict[str, str]],
})

ActionList = TypedDict("ActionList", {
    "items": list["Action"],
    "next": NotRequired[str],
})

Agent = TypedDict("Agent", {
    "address": NotRequired[str],
    "dials_in": bool,
    "machine": NotRequired[str],
    "rack": NotRequired[str],
    "seen": NotRequired[str],
    "server": str,
    "since": NotRequired[str],
    "state": str,
    "version": NotRequired[str],
})

AgentList = TypedDict("AgentList", {
    "counts": dict[str, Any],
    "items": list["Agent"],
    "next": NotRequired[str],
})

Alert = TypedDict("Alert", {
    "acknowledged_at": NotRequired[str],
    "acknowledged_by": NotRequired[str],
    "alert_type": str,
    "annotations": NotRequired[dict[str, str]],
    "attrs": NotRequired[dict[str, str]],
    "code": NotRequired[str],
    "comments": NotRequired[list["AlertComment"]],
    "condition": NotRequired[str],
    "data": dict[str, Any],
    "event_type": str,
    "fingerprint": str,
    "id": str,
    "labels": NotRequired[dict[str, str]],
    "message": NotRequired[str],
    "observed": str,
    "occurred_at": str,
    "priority": str,
    "rack": NotRequired[str],
    "resolved_at": NotRequired[str],
    "resolved_by": NotRequired[str],
    "resource": str,
    "rule": str,
    "server": NotRequired[str],
    "severity": Literal["info", "warning", "error", "critical"],
    "site": NotRequired[str],
    "source": str,
    "source_id": NotRequired[str],
    "source_type": NotRequired[str],
    "state": str,
    "status": str,
    "time": str,
    "triggered_at": str,
    "type": str,
})

AlertChange = TypedDict("AlertChange", {
    "comment": NotRequired[str],
    "status": NotRequired[Literal["acknowledged", "resolved"]],
})

AlertComment = TypedDict("AlertComment", {
    "author": str,
    "text": str,
    "time": str,
})

AlertCorrelation = TypedDict("AlertCorrelation", {
    "alert": str,
    "alternatives": list["Cause"],
    "confidence": float | None,
    "explanation": str | None,
    "external": bool,
    "incident": str | None,
    "reason": str | None,
    "recommendation": "Recommendation | None",
    "root_cause": "Cause | None",
})

AlertList = TypedDict("AlertList", {
    "items": list["Alert"],
    "next": NotRequired[str],
})

AllocatedGPU = TypedDict("AllocatedGPU", {
    "id": str,
    "name": str,
    "status": str,
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
})

AllocatedServer = TypedDict("AllocatedServer", {
    "gpus": list["AllocatedGPU"],
    "health": Literal["ok", "warning", "critical", "affected", "predicted", "acting", "out", "unknown"],
    "id": str,
    "name": str,
    "status": str,
})

Allocation = TypedDict("Allocation", {
    "active_at": NotRequired[str],
    "booked": bool,
    "created_at": str,
    "end_time": NotRequired[str],
    "ended_at": NotRequired[str],
    "exclusive": bool,
    "gpu_ids": list[str],
    "group_id": NotRequired[str],
    "id": str,
    "parameters": NotRequired[dict[str, Any]],
    "purpose": str,
    "report": NotRequired[str],
    "returned": bool,
    "server_id": str,
    "server_ids": list[str],
    "servers": list[str],
    "start_time": str,
    "status": Literal["pending", "active", "completed", "failed"],
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "team": NotRequired[str],
    "template": NotRequired[str],
    "template_version": NotRequired[int],
    "updated_at": str,
    "user": str,
    "user_id": str,
})

AllocationList = TypedDict("AllocationList", {
    "items": list["Allocation"],
    "next": NotRequired[str],
})

AllocationStatus = TypedDict("AllocationStatus", {
    "id": str,
    "replacement": NotRequired[list["Pick"]],
    "seconds_left": NotRequired[int],
    "servers": list["AllocatedServer"],
    "status": str,
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "workflows": list["Workflow"],
})

Approval = TypedDict("Approval", {
    "by": str,
    "reason": NotRequired[str],
    "time": str,
    "user": NotRequired[str],
})

Asset = TypedDict("Asset", {
    "attrs": dict[str, str],
    "change": str,
    "changed_at": NotRequired[str],
    "changed_by": NotRequired[str],
    "id": str,
    "in_inventory": bool,
    "kind": str,
    "name": str,
    "origin": NotRequired[str],
    "parent": NotRequired[str],
    "place": NotRequired["Place"],
    "source": str,
    "version": int,
})

AssetDifference = TypedDict("AssetDifference", {
    "attribute": str,
    "is": NotRequired[str],
    "was": NotRequired[str],
})

AssetList = TypedDict("AssetList", {
    "items": list["Asset"],
    "next": NotRequired[str],
})

AssetVersion = TypedDict("AssetVersion", {
    "attrs": dict[str, str],
    "by": NotRequired[str],
    "change": str,
    "differences": list["AssetDifference"],
    "kind": str,
    "origin": NotRequired[str],
    "parent": NotRequired[str],
    "source": str,
    "time": NotRequired[str],
    "version": int,
})

AssetVersionList = TypedDict("AssetVersionList", {
    "items": list["AssetVersion"],
    "next": NotRequired[str],
})

AuditChain = TypedDict("AuditChain", {
    "broken_at": NotRequired[int],
    "checked": str,
    "holds": bool,
    "rows": int,
})

AuditList = TypedDict("AuditList", {
    "chain": "AuditChain",
    "items": list["AuditRow"],
    "next": NotRequired[str],
})

AuditRow = TypedDict("AuditRow", {
    "action": str,
    "actor": str,
    "detail": NotRequired[str],
    "hash": str,
    "kind": str,
    "seq": int,
    "state": str,
    "subject": str,
    "time": str,
    "verb": str,
})

BiosRequest = TypedDict("BiosRequest", {
    "attributes": dict[str, str],
    "force": NotRequired[bool],
    "reset": NotRequired[bool],
})

BlastRadius = TypedDict("BlastRadius", {
    "gpu_hours": float,
    "gpus": int,
    "jobs": list["JobAtRisk"],
    "owners": list[str],
    "servers": list[str],
    "time": str,
    "unknown": NotRequired[int],
})

Breaker = TypedDict("Breaker", {
    "ladders": int,
    "limit": int,
    "tripped": bool,
    "window_seconds": float,
})

Budget = TypedDict("Budget", {
    "limit": int,
    "name": NotRequired[str],
    "reserved": int,
    "scope": str,
    "used": int,
})

Budgets = TypedDict("Budgets", {
    "breaker": NotRequired["Breaker"],
    "levels": list["Budget"],
    "rack_limit": int,
    "time": str,
})

Capacity = TypedDict("Capacity", {
    "pools": list["PoolCapacity"],
    "stranded": list["Stranded"],
})

Cause = TypedDict("Cause", {
    "confidence": float,
    "fault": str,
    "one_of": NotRequired[list[str]],
    "resource": str,
    "resource_id": NotRequired[str],
    "title": NotRequired[dict[str, str]],
})

ChangedAllocation = TypedDict("ChangedAllocation", {
    "end_time": NotRequired[str],
    "purpose": NotRequired[str],
})

ChangedGPU = TypedDict("ChangedGPU", {
    "cuda_version": NotRequired[str],
    "driver_version": NotRequired[str],
    "memory_gb": NotRequired[float],
    "model": NotRequired[str],
    "serial_number": NotRequired[str],
    "status": NotRequired[Literal["available", "allocated", "in_use", "error"]],
    "status_reason": NotRequired[str],
})

ChangedMaintenance = TypedDict("ChangedMaintenance", {
    "duration_seconds": NotRequired[int],
    "grace_seconds": NotRequired[int],
    "reason": NotRequired[str],
    "until": NotRequired[str],
})

ChangedPool = TypedDict("ChangedPool", {
    "description": NotRequired[str],
    "name": NotRequired[str],
})

ChangedQuota = TypedDict("ChangedQuota", {
    "max_gpus": NotRequired[int | None],
    "max_seconds": NotRequired[int | None],
    "max_servers": NotRequired[int | None],
})

ChangedReservation = TypedDict("ChangedReservation", {
    "end_time": NotRequired[str],
    "gpus": NotRequired[int],
    "name": NotRequired[str],
    "pool": NotRequired[str],
    "servers": NotRequired[int],
    "start_time": NotRequired[str],
    "team": NotRequired[str],
})

ChangedServer = TypedDict("ChangedServer", {
    "credential": NotRequired[str],
    "hold": NotRequired[str],
    "ipmi_ip": NotRequired[str],
    "labels": NotRequired[dict[str, str]],
    "management_ip": NotRequired[str],
    "model": NotRequired[str],
    "parent": NotRequired[str],
    "pool": NotRequired[str],
    "redfish_url": NotRequired[str],
    "serial_number": NotRequired[str],
    "status": NotRequired[Literal["discovered", "provisioning", "ready", "error", "retired"]],
    "status_reason": NotRequired[str],
})

ChangedTeam = TypedDict("ChangedTeam", {
    "description": NotRequired[str],
    "members": NotRequired[list[str]],
    "name": NotRequired[str],
})

ChangedTemplate = TypedDict("ChangedTemplate", {
    "architectures": NotRequired[list[Literal["x86_64", "aarch64"]]],
    "description": NotRequired[str],
    "os_family": NotRequired[Literal["talos", "flatcar", "ubuntu", "other"]],
    "parameters": NotRequired[dict[str, Any]],
    "status": NotRequired[Literal["active", "retired"]],
    "text": NotRequired[str],
})

ChangedToken = TypedDict("ChangedToken", {
    "expires_in": NotRequired[int],
    "role": NotRequired[Literal["viewer", "operator", "engineer", "admin"]],
})

ChangedUser = TypedDict("ChangedUser", {
    "email": NotRequired[str],
    "role": NotRequired[Literal["viewer", "operator", "engineer", "admin"]],
    "status": NotRequired[Literal["active", "inactive"]],
    "username": NotRequired[str],
})

ChangedWebhook = TypedDict("ChangedWebhook", {
    "active": NotRequired[bool],
    "name": NotRequired[str],
    "secret": NotRequired[str],
    "topics": NotRequired[list[str]],
    "url": NotRequired[str],
})

Choice = TypedDict("Choice", {
    "detail": NotRequired[str],
    "lost": list["NotChosen"],
    "nearest": NotRequired[list["Sentence"]],
    "runners_up": list["Pick"],
    "servers": list["Pick"],
})

ConfigDifference = TypedDict("ConfigDifference", {
    "applied": Any,
    "desired": Any,
    "field": str,
})

ConfigDrift = TypedDict("ConfigDrift", {
    "desired": str,
    "field": str,
    "found": str,
    "setting": str,
    "since": str,
})

ConfigKeeping = TypedDict("ConfigKeeping", {
    "applied_at": NotRequired[str],
    "applied_version": int,
    "attempts": int,
    "coming": dict[str, str],
    "detail": NotRequired[str],
    "drifts": list["ConfigDrift"],
    "found": dict[str, str],
    "next_attempt_at": NotRequired[str],
    "operation_id": NotRequired[str],
    "read_at": NotRequired[str],
    "sentence": NotRequired["Sentence"],
    "state": Literal["pending", "applying", "awaits", "in_force", "drifted", "rolled_back", "held", "cannot"],
    "unread": NotRequired[str],
    "version": int,
})

ConfigKept = TypedDict("ConfigKept", {
    "applied_version": int,
    "attempts": int,
    "coming": dict[str, str],
    "drifts": list["ConfigDrift"],
    "found": dict[str, str],
    "state": Literal["pending", "applying", "awaits", "in_force", "drifted", "rolled_back", "held", "cannot"],
    "version": int,
})

Conflict = TypedDict("Conflict", {
    "comment": NotRequired[str],
    "decided_at": NotRequired[str],
    "decided_by": NotRequired[str],
    "decision": NotRequired[Literal["left", "right", "dismissed"]],
    "field": str,
    "first_seen": str,
    "id": str,
    "kind": Literal["two_sources", "cable", "serial_twice"],
    "last_seen": str,
    "left": "ConflictSide",
    "resource": str,
    "right": "ConflictSide",
    "status": Literal["open", "decided", "settled"],
})

ConflictList = TypedDict("ConflictList", {
    "items": list["Conflict"],
    "next": NotRequired[str],
})

ConflictSide = TypedDict("ConflictSide", {
    "owner": NotRequired[str],
    "resource": NotRequired[str],
    "source": str,
    "time": NotRequired[str],
    "value": str,
})

Console = TypedDict("Console", {
    "command": NotRequired[str],
    "enabled": bool,
    "kind": Literal["serial", "graphical"],
    "protocol": str,
    "sessions": int,
    "url": NotRequired[str],
})

Contact = TypedDict("Contact", {
    "collector": str,
    "seconds": float,
})

Correction = TypedDict("Correction", {
    "author": str,
    "fault": NotRequired[str],
    "incident": str,
    "note": NotRequired[str],
    "resource": NotRequired[str],
    "revision": int,
    "said": "Cause",
    "time": str,
    "verdict": str,
})

CorrectionList = TypedDict("CorrectionList", {
    "items": list["Correction"],
    "next": NotRequired[str],
})

CreatedAllocation = TypedDict("CreatedAllocation", {
    "allocation": "Allocation",
    "choice": "Choice",
})

CreatedToken = TypedDict("CreatedToken", {
    "created": str,
    "expires": NotRequired[str],
    "name": str,
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "token": str,
    "user": NotRequired[str],
})

Credential = TypedDict("Credential", {
    "code": NotRequired[str],
    "token": NotRequired[str],
})

Decision = TypedDict("Decision", {
    "note": NotRequired[str],
    "reason": NotRequired[str],
    "reference": NotRequired[str],
})

Delivery = TypedDict("Delivery", {
    "attempts": int,
    "created_at": str,
    "done_at": NotRequired[str],
    "id": str,
    "last_error": NotRequired[str],
    "last_status": NotRequired[int],
    "next_attempt_at": NotRequired[str],
    "state": Literal["pending", "delivered", "dead"],
    "subject": str,
    "type": str,
    "webhook_id": str,
})

DeliveryList = TypedDict("DeliveryList", {
    "items": list["Delivery"],
    "next": NotRequired[str],
})

Difference = TypedDict("Difference", {
    "agent": NotRequired[str],
    "attr": NotRequired[str],
    "inventory": NotRequired[str],
    "kind": str,
    "others": NotRequired[list[str]],
    "reason": NotRequired[str],
    "resource": str,
    "verb": str,
    "why": NotRequired[str],
})

Discovery = TypedDict("Discovery", {
    "addresses": int,
    "asked": int,
    "completed_at": NotRequired[str],
    "created_at": str,
    "created_by": str,
    "credential": str,
    "found": int,
    "id": str,
    "ipmi_ports": list[int],
    "ranges": list[str],
    "redfish_ports": list[int],
    "refused": int,
    "silent": int,
    "started_at": NotRequired[str],
    "status": Literal["waiting", "running", "completed", "failed", "cancelled"],
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "unreadable": int,
})

DiscoveryList = TypedDict("DiscoveryList", {
    "items": list["Discovery"],
    "next": NotRequired[str],
})

DiscoveryPage = TypedDict("DiscoveryPage", {
    "discovery": "Discovery",
    "items": list["Find"],
    "next": NotRequired[str],
})

EdgeCause = TypedDict("EdgeCause", {
    "cases": float,
    "chance": float,
    "code": NotRequired[str],
    "examples": list[dict[str, Any]],
    "fault": str,
    "gain": float,
    "kinds": list[str],
    "lag_s": float,
    "lags_sum_s": float,
    "lift": float,
    "share": float,
    "shares_sum": float,
    "shown": float,
    "shows": float,
    "sign": NotRequired[str],
    "type": str,
    "way": NotRequired[str],
})

EdgeDecision = TypedDict("EdgeDecision", {
    "author": str,
    "decision": str,
    "fault": NotRequired[str],
    "kinds": NotRequired[list[str]],
    "reason": str,
    "time": str,
    "version": NotRequired[int],
    "way": NotRequired[str],
})

EdgeProposal = TypedDict("EdgeProposal", {
    "cause": str,
    "causes": list["EdgeCause"],
    "decision": NotRequired["EdgeDecision"],
    "effect": str,
    "effects": float,
    "events": int,
    "found": NotRequired[str],
    "from": NotRequired[str],
    "gain": float,
    "id": str,
    "known": NotRequired[str],
    "lag_s": float,
    "over": list[dict[str, Any]],
    "share": float,
    "state": str,
    "times": int,
    "to": NotRequired[str],
})

EdgeProposalList = TypedDict("EdgeProposalList", {
    "items": list["EdgeProposal"],
    "next": NotRequired[str],
    "parameters": int,
})

Event = TypedDict("Event", {
    "attrs": NotRequired[dict[str, str]],
    "code": NotRequired[str],
    "data": dict[str, Any],
    "event_type": str,
    "id": str,
    "message": NotRequired[str],
    "observed": str,
    "occurred_at": str,
    "resource": str,
    "severity": Literal["info", "warning", "error", "critical"],
    "source": str,
    "source_id": str,
    "source_type": str,
    "state": NotRequired[str],
    "time": str,
    "type": str,
})

EventList = TypedDict("EventList", {
    "history": bool,
    "items": list["Event"],
    "next": NotRequired[str],
})

Evidence = TypedDict("Evidence", {
    "metric": str,
    "share": float,
})

EvidenceLane = TypedDict("EvidenceLane", {
    "code": NotRequired[str],
    "count": int,
    "id": str,
    "message": NotRequired[str],
    "offsets": list[float],
    "resources": NotRequired[list[str]],
    "role": str,
    "severity": str,
    "source": NotRequired[str],
    "type": str,
})

Fact = TypedDict("Fact", {
    "name": str,
    "value": str,
})

FanStatus = TypedDict("FanStatus", {
    "duty": float | None,
    "healthy": bool | None,
    "name": str,
    "rpm": float | None,
})

FaultKinds = TypedDict("FaultKinds", {
    "fault": str,
    "kinds": list[str],
    "title": NotRequired[dict[str, str]],
})

FaultList = TypedDict("FaultList", {
    "items": list["FaultKinds"],
    "next": NotRequired[str],
})

FieldProblem = TypedDict("FieldProblem", {
    "detail": str,
    "field": str,
    "in": Literal["body", "query", "path", "header", "stored"],
    "line": NotRequired[int],
})

Find = TypedDict("Find", {
    "address": str,
    "architecture": NotRequired[Literal["x86_64", "aarch64"]],
    "boot_mode": NotRequired[Literal["uefi", "bios"]],
    "discovery_id": str,
    "gpus": list["FoundPart"],
    "hostname": NotRequired[str],
    "id": str,
    "manufacturer": NotRequired[str],
    "matched_by": NotRequired[Literal["serial", "uuid", "address", "mac"]],
    "message": NotRequired[str],
    "model": NotRequired[str],
    "nics": list["FoundPart"],
    "proposal": NotRequired["FoundProposal"],
    "protocol": Literal["redfish", "ipmi", "tinkerbell"],
    "result": Literal["found", "refused", "unreadable"],
    "seen_at": str,
    "serial_number": NotRequired[str],
    "server": NotRequired[str],
    "status": NotRequired[Literal["discovered", "known"]],
    "uuid": NotRequired[str],
})

FirmwareRequest = TypedDict("FirmwareRequest", {
    "component": str,
    "force": NotRequired[bool],
    "image": str,
    "sha256": str,
    "version": str,
})

Fleet = TypedDict("Fleet", {
    "history": "FleetHistory",
    "jobs": list["FleetJob"],
    "racks": list["FleetRack"],
    "servers": "FleetServers",
    "summary": "FleetSummary",
    "time": str,
})

FleetGPUs = TypedDict("FleetGPUs", {
    "free": int,
    "healthy": int,
    "out": int,
    "total": int,
    "used": int,
})

FleetHistory = TypedDict("FleetHistory", {
    "alerts": list[int],
    "incidents": list["FleetMark"],
    "start": str,
    "step": int,
})

FleetJob = TypedDict("FleetJob", {
    "id": str,
    "tenant": str,
})

FleetMark = TypedDict("FleetMark", {
    "id": str,
    "time": str,
})

FleetRack = TypedDict("FleetRack", {
    "feeds": list[int],
    "id": NotRequired[str],
    "leaf": int,
    "name": str,
    "row": str,
    "site": str,
})

FleetServers = TypedDict("FleetServers", {
    "gpus": list[str],
    "id": NotRequired[list[str]],
    "job": list[int],
    "load": list[int | None],
    "name": list[str],
    "power": list[int | None],
    "rack": list[int],
    "risk": list[float],
    "state": list[int],
    "temp": list[int | None],
})

FleetSummary = TypedDict("FleetSummary", {
    "gpus": "FleetGPUs",
    "name": str,
    "power_kw": float | None,
    "racks": int,
    "samples_per_second": float | None,
    "servers": int,
    "simulated": bool,
    "sites": int,
})

Forecast = TypedDict("Forecast", {
    "eta_p10": NotRequired[str],
    "eta_p50": NotRequired[str],
    "eta_p90": NotRequired[str],
    "limit": "Limit",
    "p10": list[float | None],
    "p50": list[float | None],
    "p90": list[float | None],
    "prediction": str,
    "probability": float,
    "resource": str,
    "times": list[float],
})

FoundPart = TypedDict("FoundPart", {
    "mac": NotRequired[str],
    "model": NotRequired[str],
    "name": str,
    "serial_number": NotRequired[str],
    "uuid": NotRequired[str],
})

FoundPlace = TypedDict("FoundPlace", {
    "confidence": float,
    "parent": str,
    "reason": str,
})

FoundProposal = TypedDict("FoundProposal", {
    "credential": NotRequired[str],
    "ipmi_ip": NotRequired[str],
    "name": NotRequired[str],
    "places": list["FoundPlace"],
    "redfish_url": NotRequired[str],
})

GPU = TypedDict("GPU", {
    "created_at": str,
    "cuda_version": str,
    "driver_version": str,
    "id": str,
    "in_inventory": bool,
    "memory_gb": float | None,
    "model": str,
    "name": str,
    "serial_number": str,
    "server": str,
    "server_id": str,
    "status": Literal["available", "allocated", "in_use", "error"],
    "status_reason": NotRequired[str],
    "status_since": str,
    "updated_at": str,
})

GPUApplied = TypedDict("GPUApplied", {
    "memory_clock": int | None,
    "power_limit": float | None,
})

GPUConfig = TypedDict("GPUConfig", {
    "applied": "GPUApplied",
    "applied_reason": str,
    "created_at": str,
    "created_by": str,
    "differences": list["ConfigDifference"],
    "driver_config": dict[str, Any],
    "gpu": str,
    "gpu_id": str,
    "id": str,
    "keeping": "ConfigKept",
    "memory_clock": int | None,
    "power_limit": float | None,
    "state": Literal["stored", "in_force", "differs", "unknown"],
    "version": int,
})

GPUConfigList = TypedDict("GPUConfigList", {
    "items": list["GPUConfig"],
    "next": NotRequired[str],
})

GPUList = TypedDict("GPUList", {
    "items": list["GPU"],
    "next": NotRequired[str],
})

GPUMemory = TypedDict("GPUMemory", {
    "free": float | None,
    "reserved": float | None,
    "total": float | None,
    "used": float | None,
})

GPUMetricColumn = TypedDict("GPUMetricColumn", {
    "collector": str,
    "counter": bool,
    "name": str,
    "unit": str,
    "values": list[float | None],
})

GPUMetricColumns = TypedDict("GPUMetricColumns", {
    "from": str,
    "history": bool,
    "id": str,
    "metrics": list["GPUMetricColumn"],
    "name": str,
    "step_seconds": float,
    "thinned": bool,
    "times": list[float],
    "to": str,
})

GPUReadings = TypedDict("GPUReadings", {
    "memory_clock": int | None,
    "power_limit": float | None,
})

GPUStatus = TypedDict("GPUStatus", {
    "collector": str | None,
    "driver": str | None,
    "id": str,
    "memory": "GPUMemory",
    "memory_temperature": float | None,
    "name": str,
    "power": float | None,
    "processes": int | None,
    "server": str,
    "state": str,
    "temperature": float | None,
    "timestamp": str | None,
    "utilization": "GPUUtilization",
})

GPUUtilization = TypedDict("GPUUtilization", {
    "compute": float | None,
    "gpu": float | None,
    "memory": float | None,
    "memory_bandwidth": float | None,
})

Grant = TypedDict("Grant", {
    "created_at": str,
    "id": str,
    "pool": str,
    "role": Literal["operator", "engineer", "admin"],
    "team": NotRequired[str],
    "token": NotRequired[str],
    "user": NotRequired[str],
})

GrantList = TypedDict("GrantList", {
    "items": list["Grant"],
    "next": NotRequired[str],
})

Graph = TypedDict("Graph", {
    "edges": list[dict[str, Any]],
    "nodes": list[dict[str, Any]],
})

HardwareRecord = TypedDict("HardwareRecord", {
    "bmc_ref": dict[str, Any],
    "changed_at": NotRequired[str],
    "changed_by": NotRequired[str],
    "conflicts": list[dict[str, Any]],
    "disks": list[dict[str, Any]],
    "facts": list[dict[str, Any]],
    "id": str,
    "installable": bool,
    "interfaces": list[dict[str, Any]],
    "lacks": list[str],
    "metadata": dict[str, Any],
    "model": str,
    "name": str,
    "overrides": dict[str, Any],
    "version": int,
})

HardwareRecordList = TypedDict("HardwareRecordList", {
    "items": list["HardwareRecord"],
    "next": NotRequired[str],
})

Incident = TypedDict("Incident", {
    "affected": list[str],
    "against": NotRequired[list["Sentence"]],
    "alerts": int,
    "alternatives": list["Cause"],
    "at": str,
    "closed": NotRequired[str],
    "correction": NotRequired["Correction"],
    "events": NotRequired[list[str]],
    "explanation": str,
    "explanations": NotRequired[dict[str, str]],
    "external": NotRequired[bool],
    "graph": NotRequired["Graph"],
    "holders": NotRequired[list["IncidentHolder"]],
    "id": str,
    "jobs": NotRequired[list["IncidentJob"]],
    "lanes": NotRequired[list["EvidenceLane"]],
    "merged_into": NotRequired[str],
    "no_step": NotRequired["NoStep"],
    "opened": str,
    "recommendation": NotRequired["Recommendation"],
    "revision": NotRequired[int],
    "root_cause": "Cause",
    "sentences": NotRequired[list["Sentence"]],
    "severity": NotRequired[str],
    "similar": NotRequired[list["SimilarIncident"]],
    "site": NotRequired[str],
    "status": str,
    "step": NotRequired["Sentence"],
    "summary": NotRequired["Sentence"],
    "updated": str,
    "workloads": list[str],
    "would_change": NotRequired[list["Sentence"]],
})

IncidentBin = TypedDict("IncidentBin", {
    "confidence": float,
    "from": float,
    "n": int,
    "right": int,
    "to": float,
})

IncidentFault = TypedDict("IncidentFault", {
    "fault": str,
    "n": int,
    "right": int,
    "seconds_p50": NotRequired[float],
    "seconds_p95": NotRequired[float],
})

IncidentHolder = TypedDict("IncidentHolder", {
    "allocation": str,
    "purpose": str,
    "servers": list[str],
    "team": NotRequired[str],
    "user": str,
})

IncidentJob = TypedDict("IncidentJob", {
    "gpus": int,
    "id": str,
    "tenant": str,
})

IncidentList = TypedDict("IncidentList", {
    "items": list["Incident"],
    "next": NotRequired[str],
})

IncidentRecord = TypedDict("IncidentRecord", {
    "bins": list["IncidentBin"],
    "calibration_error": NotRequired[float],
    "closed": int,
    "enough": bool,
    "faults": list["IncidentFault"],
    "judged": int,
    "no_incident": int,
    "parameters": int,
    "right": int,
    "seconds_p50": NotRequired[float],
    "seconds_p95": NotRequired[float],
    "since": str,
    "wrong": int,
})

JobAtRisk = TypedDict("JobAtRisk", {
    "gpu_hours": float,
    "gpus": int,
    "id": str,
    "name": NotRequired[str],
    "owner": NotRequired[str],
    "since": NotRequired[str],
})

JoinToken = TypedDict("JoinToken", {
    "accept": bool,
    "created": str,
    "created_by": str,
    "expires": str,
    "name": str,
    "refused": NotRequired[int],
    "refused_at": NotRequired[str],
    "refused_from": NotRequired[str],
    "revoked": NotRequired[str],
    "revoked_by": NotRequired[str],
    "server": NotRequired[str],
    "state": str,
    "token": NotRequired[str],
    "used": int,
    "uses": int,
})

JoinTokenList = TypedDict("JoinTokenList", {
    "items": list["JoinToken"],
    "listen": NotRequired[str],
    "next": NotRequired[str],
})

Limit = TypedDict("Limit", {
    "above": NotRequired[float],
    "below": NotRequired[float],
    "source": NotRequired[str],
})

LoginCode = TypedDict("LoginCode", {
    "code": str,
    "expires": str,
})

LoginMethods = TypedDict("LoginMethods", {
    "oidc": NotRequired["LoginService"],
})

LoginService = TypedDict("LoginService", {
    "name": str,
    "ready": bool,
})

Machine = TypedDict("Machine", {
    "address": NotRequired[str],
    "admitted": bool,
    "doubt": NotRequired[str],
    "hostname": NotRequired[str],
    "joined": str,
    "key": str,
    "revoked": NotRequired[str],
    "revoked_by": NotRequired[str],
    "seen": str,
    "serial": NotRequired[str],
    "server": NotRequired[str],
    "token": str,
    "uuid": NotRequired[str],
    "version": NotRequired[str],
})

MachineList = TypedDict("MachineList", {
    "items": list["Machine"],
    "next": NotRequired[str],
})

Maintenance = TypedDict("Maintenance", {
    "by": str,
    "changed": NotRequired[list[str]],
    "changed_by": NotRequired[str],
    "declared": str,
    "ended": NotRequired[str],
    "ended_by": NotRequired[str],
    "from": str,
    "grace_seconds": int,
    "id": str,
    "pools": NotRequired[list[str]],
    "reason": str,
    "resources": list[str],
    "source": str,
    "state": NotRequired[str],
    "until": str,
    "work": str,
})

MaintenanceList = TypedDict("MaintenanceList", {
    "items": list["Maintenance"],
    "next": NotRequired[str],
    "works": list["MaintenanceWork"],
})

MaintenanceWork = TypedDict("MaintenanceWork", {
    "kinds": list[str],
    "work": str,
})

Me = TypedDict("Me", {
    "grants": NotRequired[list["PoolRight"]],
    "history": NotRequired[bool],
    "mode": str,
    "name": str,
    "permissions": list[str],
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "simulated": bool,
    "user": NotRequired["MyUser"],
    "version": str,
})

Model = TypedDict("Model", {
    "name": str,
    "version": str,
})

MyUser = TypedDict("MyUser", {
    "id": str,
    "teams": list[str],
    "username": str,
})

NewAlert = TypedDict("NewAlert", {
    "alert_type": str,
    "code": NotRequired[str],
    "data": NotRequired[dict[str, Any]],
    "message": NotRequired[str],
    "priority": NotRequired[Literal["low", "medium", "high", "critical"]],
    "severity": NotRequired[Literal["info", "warning", "error", "critical"]],
    "source_id": str,
    "source_type": NotRequired[str],
    "status": NotRequired[Literal["active", "resolved"]],
    "triggered_at": NotRequired[str],
})

NewAllocation = TypedDict("NewAllocation", {
    "end_time": NotRequired[str],
    "gpu_ids": NotRequired[list[str]],
    "group_id": NotRequired[str],
    "parameters": NotRequired[dict[str, Any]],
    "purpose": NotRequired[str],
    "server_id": NotRequired[str],
    "server_ids": NotRequired[list[str]],
    "start_time": NotRequired[str],
    "team": NotRequired[str],
    "template": NotRequired[str],
    "template_version": NotRequired[int],
    "user_id": NotRequired[str],
    "wish": NotRequired["Wish"],
})

NewConflictDecision = TypedDict("NewConflictDecision", {
    "comment": NotRequired[str],
    "decision": Literal["left", "right", "dismissed"],
})

NewCorrection = TypedDict("NewCorrection", {
    "fault": NotRequired[str],
    "note": NotRequired[str],
    "resource": NotRequired[str],
    "verdict": Literal["right", "cause", "no_incident", "withdrawn"],
})

NewDiscovery = TypedDict("NewDiscovery", {
    "credential": NotRequired[str],
    "ipmi_ports": NotRequired[list[int]],
    "ranges": list[str],
    "redfish_ports": NotRequired[list[int]],
})

NewEdgeDecision = TypedDict("NewEdgeDecision", {
    "decision": Literal["accepted", "declined", "withdrawn"],
    "fault": NotRequired[str],
    "reason": str,
})

NewEvent = TypedDict("NewEvent", {
    "code": NotRequired[str],
    "data": NotRequired[dict[str, Any]],
    "event_type": str,
    "message": NotRequired[str],
    "occurred_at": NotRequired[str],
    "severity": Literal["info", "warning", "error", "critical"],
    "source_id": str,
    "source_type": NotRequired[str],
    "state": NotRequired[Literal["raised", "cleared"]],
})

NewGPU = TypedDict("NewGPU", {
    "cuda_version": NotRequired[str],
    "driver_version": NotRequired[str],
    "index": NotRequired[int],
    "memory_gb": NotRequired[float],
    "model": NotRequired[str],
    "name": NotRequired[str],
    "pci": NotRequired[str],
    "serial_number": NotRequired[str],
    "uuid": NotRequired[str],
})

NewGPUConfig = TypedDict("NewGPUConfig", {
    "driver_config": NotRequired[dict[str, Any]],
    "memory_clock": NotRequired[int],
    "power_limit": NotRequired[float],
})

NewGrant = TypedDict("NewGrant", {
    "pool": str,
    "role": Literal["operator", "engineer", "admin"],
    "team": NotRequired[str],
    "token": NotRequired[str],
    "user": NotRequired[str],
})

NewHardwareOverrides = TypedDict("NewHardwareOverrides", {
    "allow_pxe": NotRequired[bool],
    "allow_workflow": NotRequired[bool],
    "architecture": NotRequired[Literal["x86_64", "aarch64"]],
    "bmc_ref": NotRequired[dict[str, Any]],
    "boot_disk": NotRequired[str],
    "boot_mac": NotRequired[str],
    "boot_mode": NotRequired[Literal["uefi", "bios"]],
    "template": NotRequired[str],
    "template_version": NotRequired[int],
    "user_data": NotRequired[str],
})

NewJoinToken = TypedDict("NewJoinToken", {
    "accept": NotRequired[bool],
    "expires_in": NotRequired[int],
    "name": str,
    "server": NotRequired[str],
    "uses": NotRequired[int],
})

NewMaintenance = TypedDict("NewMaintenance", {
    "duration_seconds": NotRequired[int],
    "from": NotRequired[str],
    "grace_seconds": NotRequired[int],
    "match": NotRequired[dict[str, str]],
    "pools": NotRequired[list[str]],
    "reason": str,
    "resources": NotRequired[list[str]],
    "until": NotRequired[str],
    "work": NotRequired[str],
})

NewPool = TypedDict("NewPool", {
    "description": NotRequired[str],
    "name": str,
})

NewProposalDecision = TypedDict("NewProposalDecision", {
    "decision": Literal["accepted", "declined"],
    "rack": NotRequired[str],
    "reason": NotRequired[str],
})

NewQuota = TypedDict("NewQuota", {
    "max_gpus": NotRequired[int | None],
    "max_seconds": NotRequired[int | None],
    "max_servers": NotRequired[int | None],
    "pool": NotRequired[str],
    "team": NotRequired[str],
})

NewRendering = TypedDict("NewRendering", {
    "parameters": NotRequired[dict[str, Any]],
    "server": str,
    "version": NotRequired[int],
})

NewReservation = TypedDict("NewReservation", {
    "end_time": str,
    "gpus": NotRequired[int],
    "name": str,
    "pool": str,
    "servers": NotRequired[int],
    "start_time": NotRequired[str],
    "team": str,
})

NewServer = TypedDict("NewServer", {
    "credential": NotRequired[str],
    "found": NotRequired[str],
    "gpus": NotRequired[list["NewGPU"]],
    "ipmi_ip": NotRequired[str],
    "labels": NotRequired[dict[str, str]],
    "management_ip": NotRequired[str],
    "model": NotRequired[str],
    "name": str,
    "parent": NotRequired[str],
    "pool": NotRequired[str],
    "redfish_url": NotRequired[str],
    "serial_number": NotRequired[str],
})

NewServerConfig = TypedDict("NewServerConfig", {
    "bios_config": NotRequired[dict[str, Any]],
    "network_config": NotRequired[dict[str, Any]],
    "raid_config": NotRequired[dict[str, Any]],
})

NewTeam = TypedDict("NewTeam", {
    "description": NotRequired[str],
    "members": NotRequired[list[str]],
    "name": str,
})

NewTemplate = TypedDict("NewTemplate", {
    "architectures": list[Literal["x86_64", "aarch64"]],
    "description": NotRequired[str],
    "name": str,
    "os_family": Literal["talos", "flatcar", "ubuntu", "other"],
    "parameters": NotRequired[dict[str, Any]],
    "text": str,
})

NewToken = TypedDict("NewToken", {
    "expires_in": NotRequired[int],
    "name": str,
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "user": NotRequired[str],
})

NewUser = TypedDict("NewUser", {
    "email": str,
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "status": NotRequired[Literal["active", "inactive"]],
    "username": str,
})

NewWebhook = TypedDict("NewWebhook", {
    "active": NotRequired[bool],
    "name": str,
    "secret": str,
    "topics": NotRequired[list[str]],
    "url": str,
})

NewWorkflow = TypedDict("NewWorkflow", {
    "allocation_id": NotRequired[str],
    "parameters": NotRequired[dict[str, Any]],
    "server_id": str,
    "template": NotRequired[str],
    "template_version": NotRequired[int],
    "type": Literal["deploy", "cleanup", "config", "validate", "bring_up"],
})

NoStep = TypedDict("NoStep", {
    "policy": NotRequired[str],
    "reason": str,
    "sentence": "Sentence",
})

NotChosen = TypedDict("NotChosen", {
    "count": int,
    "detail": NotRequired[str],
    "examples": list[str],
    "reason": "Sentence",
})

Notice = TypedDict("Notice", {
    "data": dict[str, Any],
    "id": str,
    "sentence": NotRequired["Sentence"],
    "subject": str,
    "team_id": NotRequired[str],
    "time": str,
    "type": str,
    "user_id": NotRequired[str],
})

NoticeList = TypedDict("NoticeList", {
    "items": list["Notice"],
    "next": NotRequired[str],
})

Operation = TypedDict("Operation", {
    "actor": str,
    "created_at": str,
    "detail": NotRequired[str],
    "done": bool,
    "id": str,
    "kind": str,
    "rails": list["Rail"],
    "reason": str,
    "sentence": NotRequired["Sentence"],
    "server": str,
    "server_id": NotRequired[str],
    "state": Literal["pending", "proposed", "waiting", "approved", "running", "verifying", "done", "failed", "unknown", "cancelled", "refused"],
    "target": NotRequired[str],
    "updated_at": str,
    "verified_by": NotRequired[str],
    "with": NotRequired[dict[str, str]],
})

OperationList = TypedDict("OperationList", {
    "items": list["Operation"],
    "next": NotRequired[str],
})

PSUStatus = TypedDict("PSUStatus", {
    "healthy": bool | None,
    "input_power": float | None,
    "input_present": bool | None,
    "name": str,
})

PartLink = TypedDict("PartLink", {
    "kind": str,
    "part": str,
    "peer": str,
})

Pick = TypedDict("Pick", {
    "detail": NotRequired[str],
    "gpu_ids": list[str],
    "gpus": list[str],
    "reasons": list["Sentence"],
    "server": str,
    "server_id": str,
})

Place = TypedDict("Place", {
    "parent": NotRequired[str],
    "rack": NotRequired[str],
    "row": NotRequired[str],
    "site": NotRequired[str],
})

Plot = TypedDict("Plot", {
    "avg": list[float | None],
    "forecast": NotRequired["Forecast"],
    "limit": NotRequired["Limit"],
    "max": list[float | None],
    "metric": str,
    "min": list[float | None],
    "peer": NotRequired[list[float | None]],
    "query": str,
    "subject": str,
    "thresholds": NotRequired[list["Threshold"]],
    "times": list[float],
    "unit": str,
})

PlotList = TypedDict("PlotList", {
    "items": list["Plot"],
    "range_seconds": float,
})

Pool = TypedDict("Pool", {
    "created_at": str,
    "description": str,
    "id": str,
    "name": str,
    "servers": int,
    "updated_at": str,
})

PoolCapacity = TypedDict("PoolCapacity", {
    "cleaning_gpus": int,
    "free_gpus": int,
    "given_gpus": int,
    "gpus": int,
    "pool": str,
    "reserved_gpus": int,
    "servers": int,
    "stranded_gpus": int,
})

PoolList = TypedDict("PoolList", {
    "items": list["Pool"],
    "next": NotRequired[str],
})

PoolRequest = TypedDict("PoolRequest", {
    "action": Literal["drain", "quarantine", "uncordon"],
})

PoolRight = TypedDict("PoolRight", {
    "permissions": list[str],
    "pool": str,
    "role": Literal["operator", "engineer", "admin"],
})

PowerRequest = TypedDict("PowerRequest", {
    "action": Literal["power_on", "power_off", "reboot", "power_cycle", "ac_cycle", "nmi", "reset_bmc", "cap_power", "uncap_power"],
    "force": NotRequired[bool],
    "watts": NotRequired[int],
})

Prediction = TypedDict("Prediction", {
    "eta_p10": NotRequired[str],
    "eta_p50": NotRequired[str],
    "eta_p90": NotRequired[str],
    "evidence": list["Evidence"],
    "explanation": NotRequired[str],
    "failure": NotRequired[str],
    "failure_title": NotRequired[dict[str, str]],
    "horizon_seconds": float,
    "id": str,
    "job": NotRequired[str],
    "limit": "Limit",
    "metric": NotRequired[str],
    "model": "Model",
    "opened": NotRequired[str],
    "probability": float,
    "resource": str,
    "resource_id": str,
    "said": NotRequired[float],
    "sentence": NotRequired["Sentence"],
    "server": str,
    "site": NotRequired[str],
    "slope_per_hour": float,
    "state": str,
    "time": str,
    "unit": NotRequired[str],
    "value": float,
})

PredictionList = TypedDict("PredictionList", {
    "horizon_seconds": float,
    "items": list["Prediction"],
    "next": NotRequired[str],
})

PredictionRecord = TypedDict("PredictionRecord", {
    "averted": int,
    "came_true": int,
    "expired": int,
    "lead_seconds": NotRequired[float],
    "missed": int,
    "open": int,
    "said": list["ProbabilityBin"],
    "since": str,
})

ProbabilityBin = TypedDict("ProbabilityBin", {
    "came_true": int,
    "ended": int,
    "from": float,
    "to": float,
})

Problem = TypedDict("Problem", {
    "candidates": NotRequired[list["ResourceRef"]],
    "choice": NotRequired["Choice"],
    "code": str,
    "detail": str,
    "errors": NotRequired[list["FieldProblem"]],
    "hint": NotRequired[str],
    "legal": NotRequired[list[str]],
    "status": int,
    "title": str,
    "type": str,
})

Proposal = TypedDict("Proposal", {
    "address": NotRequired[str],
    "conflicts": int,
    "decided": NotRequired[str],
    "decided_by": NotRequired[str],
    "differences": list["Difference"],
    "digest": str,
    "fragment": dict[str, Any],
    "hostname": NotRequired[str],
    "id": str,
    "known": bool,
    "machine": NotRequired[str],
    "rack": NotRequired[str],
    "server": str,
    "state": Literal["open", "accepted", "declined"],
    "time": str,
    "token": NotRequired[str],
    "why": NotRequired[str],
})

ProposalList = TypedDict("ProposalList", {
    "items": list["Proposal"],
    "next": NotRequired[str],
})

Quota = TypedDict("Quota", {
    "created_at": str,
    "id": str,
    "max_gpus": int | None,
    "max_seconds": int | None,
    "max_servers": int | None,
    "pool": NotRequired[str],
    "team": NotRequired[str],
    "updated_at": str,
    "usage": list["QuotaUsage"],
})

QuotaList = TypedDict("QuotaList", {
    "items": list["Quota"],
    "next": NotRequired[str],
})

QuotaUsage = TypedDict("QuotaUsage", {
    "gpus": int,
    "servers": int,
    "team": NotRequired[str],
    "user": NotRequired[str],
})

Rail = TypedDict("Rail", {
    "detail": NotRequired[str],
    "limit": float,
    "name": str,
    "ok": bool,
    "sentence": NotRequired["Sentence"],
    "value": float,
})

Recommendation = TypedDict("Recommendation", {
    "action": str,
    "target": str,
})

RefusedDescription = TypedDict("RefusedDescription", {
    "address": NotRequired[str],
    "machine": NotRequired[str],
    "read": str,
    "refused": str,
    "server": NotRequired[str],
    "since": str,
    "token": NotRequired[str],
    "version": NotRequired[str],
})

RefusedDescriptionList = TypedDict("RefusedDescriptionList", {
    "items": list["RefusedDescription"],
    "next": NotRequired[str],
})

RenderedTemplate = TypedDict("RenderedTemplate", {
    "secrets": list[str],
    "server": str,
    "server_id": str,
    "steps": list[dict[str, Any]],
    "template": str,
    "template_id": str,
    "text": str,
    "version": int,
})

Reservation = TypedDict("Reservation", {
    "created_at": str,
    "created_by": str,
    "end_time": str,
    "gpus": int,
    "id": str,
    "name": str,
    "pool": str,
    "servers": int,
    "start_time": str,
    "team": str,
    "updated_at": str,
})

ReservationList = TypedDict("ReservationList", {
    "items": list["Reservation"],
    "next": NotRequired[str],
})

Resource = TypedDict("Resource", {
    "attrs": dict[str, str],
    "id": str,
    "kind": str,
    "name": str,
    "parent": NotRequired["ResourceRef"],
    "parts": list["ResourceRef"],
    "rack": NotRequired["ResourceRef"],
    "server": NotRequired["ResourceRef"],
    "site": NotRequired["ResourceRef"],
})

ResourceList = TypedDict("ResourceList", {
    "items": list["ResourceRef"],
    "next": NotRequired[str],
})

ResourceRef = TypedDict("ResourceRef", {
    "id": str,
    "kind": str,
    "name": str,
})

SanitizeStatus = TypedDict("SanitizeStatus", {
    "erased": NotRequired[bool],
    "progress": NotRequired[float],
    "raw": str,
    "state": Literal["none", "running", "done", "failed"],
})

SearchResult = TypedDict("SearchResult", {
    "id": str,
    "kind": str,
    "match": Literal["exact", "prefix", "substring"],
    "matched": str,
    "name": str,
    "server": NotRequired[str],
})

SearchResults = TypedDict("SearchResults", {
    "items": list["SearchResult"],
    "more": bool,
})

Sentence = TypedDict("Sentence", {
    "args": NotRequired[dict[str, Any]],
    "count": NotRequired[int],
    "id": str,
    "lanes": NotRequired[list[str]],
    "text": NotRequired[dict[str, str]],
})

Server = TypedDict("Server", {
    "actions": list["Action"],
    "allocatable": NotRequired[bool],
    "allocation": "ServerAllocation",
    "consoles": NotRequired[list["Console"]],
    "contact": list["Contact"],
    "created_at": NotRequired[str],
    "events": list["Alert"],
    "health": Literal["ok", "warning", "critical", "affected", "predicted", "acting", "out", "unknown"],
    "hold": NotRequired[str],
    "hold_by": NotRequired[str],
    "id": str,
    "in_inventory": NotRequired[bool],
    "incidents": list["Incident"],
    "inventory": list["Fact"],
    "ipmi_ip": NotRequired[str],
    "job": NotRequired["ServerJob"],
    "kind": str,
    "labels": NotRequired[dict[str, str]],
    "links": list["PartLink"],
    "management_ip": NotRequired[str],
    "model": NotRequired[str],
    "name": str,
    "parts": list["ServerParts"],
    "place": NotRequired["Place"],
    "pool": NotRequired[str],
    "predictions": list["Prediction"],
    "rack": str,
    "redfish_url": NotRequired[str],
    "risk": float,
    "serial": NotRequired[str],
    "serial_number": NotRequired[str],
    "site": str,
    "state": int,
    "status": NotRequired[Literal["discovered", "provisioning", "ready", "error", "retired"]],
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "status_since": NotRequired[str],
    "updated_at": NotRequired[str],
    "why_not": NotRequired[str],
})

ServerAllocation = TypedDict("ServerAllocation", {
    "end_time": NotRequired[str],
    "id": str,
    "status": str,
    "user": str,
    "user_id": str,
})

ServerConfig = TypedDict("ServerConfig", {
    "applied": dict[str, Any] | None,
    "applied_reason": str,
    "bios_config": dict[str, Any],
    "created_at": str,
    "created_by": str,
    "differences": list["ConfigDifference"],
    "id": str,
    "keeping": "ConfigKept",
    "network_config": dict[str, Any],
    "raid_config": dict[str, Any],
    "server": str,
    "server_id": str,
    "state": Literal["stored", "in_force", "differs", "unknown"],
    "version": int,
})

ServerConfigList = TypedDict("ServerConfigList", {
    "items": list["ServerConfig"],
    "next": NotRequired[str],
})

ServerJob = TypedDict("ServerJob", {
    "id": str,
    "name": NotRequired[str],
    "since": NotRequired[str],
    "tenant": str,
})

ServerParts = TypedDict("ServerParts", {
    "kind": str,
    "names": list[str],
    "states": str,
})

ServerRecord = TypedDict("ServerRecord", {
    "allocatable": bool,
    "allocation": "ServerAllocation",
    "created_at": str,
    "health": Literal["ok", "warning", "critical", "affected", "predicted", "acting", "out", "unknown"],
    "hold": str,
    "hold_by": NotRequired[str],
    "id": str,
    "in_inventory": bool,
    "ipmi_ip": str,
    "labels": dict[str, str],
    "management_ip": str,
    "model": str,
    "name": str,
    "place": "Place",
    "pool": str,
    "redfish_url": str,
    "risk": float,
    "serial_number": str,
    "status": Literal["discovered", "provisioning", "ready", "error", "retired"],
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "status_since": str,
    "updated_at": str,
    "why_not": NotRequired[str],
})

ServerRecordList = TypedDict("ServerRecordList", {
    "items": list["ServerRecord"],
    "next": NotRequired[str],
})

ServerStatus = TypedDict("ServerStatus", {
    "agent_reachable": bool | None,
    "bmc_reachable": bool | None,
    "fans": list["FanStatus"],
    "health": str,
    "id": str,
    "inlet_temperature": float | None,
    "last_boot": str | None,
    "name": str,
    "power": Literal["on", "off"] | None,
    "power_draw": float | None,
    "psus": list["PSUStatus"],
    "telemetry": list["Contact"],
    "timestamp": str | None,
})

SimilarIncident = TypedDict("SimilarIncident", {
    "closed": str,
    "cured_by": list[str],
    "id": str,
    "match": str,
    "opened": str,
    "resource": str,
})

Stage = TypedDict("Stage", {
    "message": NotRequired[str],
    "name": str,
    "started_at": NotRequired[str],
    "state": str,
})

StoppedAllocation = TypedDict("StoppedAllocation", {
    "force": NotRequired[bool],
    "report": NotRequired[str],
})

Stranded = TypedDict("Stranded", {
    "detail": NotRequired[str],
    "detail_sentence": NotRequired["Sentence"],
    "gpus": int,
    "pool": str,
    "server": str,
    "server_id": str,
    "since": str,
    "why": Literal["hold", "status", "repair", "gpu_error", "cleaning_failed"],
})

Team = TypedDict("Team", {
    "created_at": str,
    "description": str,
    "id": str,
    "members": list[str],
    "name": str,
    "updated_at": str,
})

TeamList = TypedDict("TeamList", {
    "items": list["Team"],
    "next": NotRequired[str],
})

Template = TypedDict("Template", {
    "architectures": list[Literal["x86_64", "aarch64"]],
    "created_at": str,
    "description": str,
    "id": str,
    "name": str,
    "os_family": Literal["talos", "flatcar", "ubuntu", "other"],
    "parameters": NotRequired[dict[str, Any]],
    "status": Literal["active", "retired"],
    "text": NotRequired[str],
    "updated_at": str,
    "version": int,
    "version_at": str,
    "version_by": str,
})

TemplateList = TypedDict("TemplateList", {
    "items": list["Template"],
    "next": NotRequired[str],
})

TemplateVersion = TypedDict("TemplateVersion", {
    "architectures": list[Literal["x86_64", "aarch64"]],
    "description": str,
    "os_family": Literal["talos", "flatcar", "ubuntu", "other"],
    "version": int,
    "version_at": str,
    "version_by": str,
})

TemplateVersionList = TypedDict("TemplateVersionList", {
    "items": list["TemplateVersion"],
    "next": NotRequired[str],
})

Threshold = TypedDict("Threshold", {
    "bound": str,
    "value": float,
})

Token = TypedDict("Token", {
    "created": str,
    "expires": NotRequired[str],
    "last_used": NotRequired[str],
    "name": str,
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "user": NotRequired[str],
})

TokenList = TypedDict("TokenList", {
    "items": list["Token"],
    "next": NotRequired[str],
})

User = TypedDict("User", {
    "created_at": str,
    "email": str,
    "id": str,
    "role": Literal["viewer", "operator", "engineer", "admin"],
    "status": Literal["active", "inactive"],
    "teams": list[str],
    "updated_at": str,
    "username": str,
})

UserList = TypedDict("UserList", {
    "items": list["User"],
    "next": NotRequired[str],
})

Validation = TypedDict("Validation", {
    "began_at": str,
    "checks": list["ValidationCheck"],
    "created_at": str,
    "ended_at": str,
    "id": str,
    "level": int,
    "number": int,
    "part": NotRequired[str],
    "server": str,
    "server_id": str,
    "verdict": Literal["passed", "warned", "failed", "not_seen"],
})

ValidationCheck = TypedDict("ValidationCheck", {
    "detail": NotRequired[str],
    "expected": NotRequired[str],
    "fleet": NotRequired[bool],
    "name": str,
    "part": NotRequired[str],
    "seen": NotRequired[str],
    "source": Literal["agent", "telemetry", "inventory"],
    "verdict": Literal["passed", "warned", "failed", "not_seen"],
})

ValidationList = TypedDict("ValidationList", {
    "items": list["Validation"],
    "next": NotRequired[str],
})

Webhook = TypedDict("Webhook", {
    "active": bool,
    "created_at": str,
    "dead": int,
    "id": str,
    "last_attempt_at": NotRequired[str],
    "last_error": NotRequired[str],
    "last_status": NotRequired[int],
    "name": str,
    "secret_set_at": str,
    "topics": list[str],
    "updated_at": str,
    "url": str,
    "waiting": int,
})

WebhookList = TypedDict("WebhookList", {
    "items": list["Webhook"],
    "next": NotRequired[str],
})

Wipe = TypedDict("Wipe", {
    "action_id": str,
    "began_at": str,
    "created_at": str,
    "drives": list["WipeDrive"],
    "ended_at": str,
    "id": str,
    "number": int,
    "proven": bool,
    "server": str,
    "server_id": str,
    "workflow": str,
})

WipeBlocks = TypedDict("WipeBlocks", {
    "blank": int,
    "block_bytes": int,
    "data": NotRequired[list[int]],
    "message": NotRequired[str],
    "offsets": list[int],
    "unread": NotRequired[list[int]],
})

WipeDrive = TypedDict("WipeDrive", {
    "blocks": NotRequired["WipeBlocks"],
    "detail": str,
    "device": NotRequired[str],
    "method": NotRequired[Literal["nvme_sanitize", "ata_sanitize", "blocks"]],
    "model": NotRequired[str],
    "proven": bool,
    "resource": NotRequired[str],
    "sanitize": NotRequired["SanitizeStatus"],
    "serial": NotRequired[str],
    "size_bytes": NotRequired[int],
})

WipeList = TypedDict("WipeList", {
    "items": list["Wipe"],
    "next": NotRequired[str],
})

Wish = TypedDict("Wish", {
    "gpus": NotRequired[int],
    "gpus_per_server": NotRequired[int],
    "labels": NotRequired[dict[str, str]],
    "max_risk": NotRequired[float],
    "min_health": NotRequired[Literal["ok", "warning"]],
    "min_memory_gb": NotRequired[float],
    "model": NotRequired[str],
    "pool": NotRequired[str],
    "server_model": NotRequired[str],
    "servers": NotRequired[int],
    "spread": NotRequired[Literal["feeds", "racks"]],
    "together": NotRequired[Literal["rack", "rail", "nvlink"]],
})

Workflow = TypedDict("Workflow", {
    "allocation_id": NotRequired[str],
    "attempt": int,
    "completed_at": NotRequired[str],
    "created_at": str,
    "created_by": str,
    "exclusive": bool,
    "id": str,
    "server": str,
    "server_id": str,
    "started_at": NotRequired[str],
    "status": Literal["pending", "running", "completed", "failed"],
    "status_reason": NotRequired[str],
    "status_sentence": NotRequired["Sentence"],
    "steps": list["WorkflowStep"],
    "tinkerbell_id": str,
    "type": Literal["deploy", "cleanup", "config", "validate", "bring_up"],
    "updated_at": str,
})

WorkflowList = TypedDict("WorkflowList", {
    "items": list["Workflow"],
    "next": NotRequired[str],
})

WorkflowOfAllocation = TypedDict("WorkflowOfAllocation", {
    "allocation_id": str,
    "server_id": str,
})

WorkflowStep = TypedDict("WorkflowStep", {
    "completed_at": NotRequired[str],
    "message": NotRequired[str],
    "name": str,
    "operation": NotRequired[str],
    "sentence": NotRequired["Sentence"],
    "stages": NotRequired[list["Stage"]],
    "started_at": NotRequired[str],
    "status": Literal["pending", "running", "completed", "failed", "skipped"],
    "target": NotRequired[str],
    "with": NotRequired[dict[str, str]],
})


class Api(Transport):
    """Every route of the API."""

    def list_actions(self, *, state: Literal["proposed", "waiting", "approved", "running", "verifying", "done", "failed", "unknown", "cancelled", "refused"] | None = None, server: str | None = None, incident: str | None = None, sort: Literal["time", "-time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ActionList":
        """List actions: proposed, running and past."""
        answer: "ActionList" = self._do("GET", "/actions", query={"state": state, "server": server, "incident": incident, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_actions(self, *, state: Literal["proposed", "waiting", "approved", "running", "verifying", "done", "failed", "unknown", "cancelled", "refused"] | None = None, server: str | None = None, incident: str | None = None, sort: Literal["time", "-time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Action"]:
        """List actions: proposed, running and past."""
        query: dict[str, Any] = {"state": state, "server": server, "incident": incident, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/actions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_budgets(self) -> "Budgets":
        """Budgets of control and the storm breaker."""
        answer: "Budgets" = self._do("GET", "/actions/budgets")
        return answer

    def get_action(self, id: str) -> "Action":
        """One action."""
        answer: "Action" = self._do("GET", f"/actions/{_part(id)}")
        return answer

    def decide_action(self, id: str, verb: str, body: "Decision" | None = None) -> "Accepted":
        """Approve, cancel, dry-run or resolve an action, or override a freeze for it."""
        answer: "Accepted" = self._do("POST", f"/actions/{_part(id)}/{_part(verb)}", once=True, body=body)
        return answer

    def list_agents(self, *, state: Literal["answers", "unheard", "lost", "refuses", "none", "away"] | None = None, sort: Literal["server", "-server", "rack", "-rack", "state", "-state"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AgentList":
        """List the servers of the inventory by name, with the state of their node agents."""
        answer: "AgentList" = self._do("GET", "/agents", query={"state": state, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_agents(self, *, state: Literal["answers", "unheard", "lost", "refuses", "none", "away"] | None = None, sort: Literal["server", "-server", "rack", "-rack", "state", "-state"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Agent"]:
        """List the servers of the inventory by name, with the state of their node agents."""
        query: dict[str, Any] = {"state": state, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/agents", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_alerts(self, *, status: Literal["active", "acknowledged", "firing", "resolved"] | None = None, server: str | None = None, type: str | None = None, severity: Literal["info", "warning", "error", "critical"] | None = None, source: str | None = None, since: str | None = None, sort: Literal["time", "-time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AlertList":
        """List alerts: events that detection admitted."""
        answer: "AlertList" = self._do("GET", "/alerts", query={"status": status, "server": server, "type": type, "severity": severity, "source": source, "since": since, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_alerts(self, *, status: Literal["active", "acknowledged", "firing", "resolved"] | None = None, server: str | None = None, type: str | None = None, severity: Literal["info", "warning", "error", "critical"] | None = None, source: str | None = None, since: str | None = None, sort: Literal["time", "-time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Alert"]:
        """List alerts: events that detection admitted."""
        query: dict[str, Any] = {"status": status, "server": server, "type": type, "severity": severity, "source": source, "since": since, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/alerts", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def post_alert(self, body: "NewAlert") -> "Event":
        """Report an alert that Auspex does not raise itself."""
        answer: "Event" = self._do("POST", "/alerts", once=True, body=body)
        return answer

    def get_alert(self, id: str) -> "Alert":
        """One alert, and how people handled it."""
        answer: "Alert" = self._do("GET", f"/alerts/{_part(id)}")
        return answer

    def handle_alert(self, id: str, body: "AlertChange", *, if_match: str | None = None) -> "Alert":
        """Acknowledge or resolve an alert, or comment on it."""
        answer: "Alert" = self._do("PUT", f"/alerts/{_part(id)}", if_match=if_match, body=body)
        return answer

    def get_alert_correlation(self, id: str) -> "AlertCorrelation":
        """Which incident an alert belongs to, and what caused it."""
        answer: "AlertCorrelation" = self._do("GET", f"/alerts/{_part(id)}/correlation")
        return answer

    def list_allocations(self, *, status: Literal["pending", "active", "completed", "failed"] | None = None, user: str | None = None, team: str | None = None, group_id: str | None = None, server: str | None = None, live: bool | None = None, ended: bool | None = None, sort: Literal["created_at", "-created_at", "start_time", "-start_time", "end_time", "-end_time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AllocationList":
        """List allocations, the last made first; a member of a team sees those of their own and of their teams."""
        answer: "AllocationList" = self._do("GET", "/allocations", query={"status": status, "user": user, "team": team, "group_id": group_id, "server": server, "live": live, "ended": ended, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_allocations(self, *, status: Literal["pending", "active", "completed", "failed"] | None = None, user: str | None = None, team: str | None = None, group_id: str | None = None, server: str | None = None, live: bool | None = None, ended: bool | None = None, sort: Literal["created_at", "-created_at", "start_time", "-start_time", "end_time", "-end_time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Allocation"]:
        """List allocations, the last made first; a member of a team sees those of their own and of their teams."""
        query: dict[str, Any] = {"status": status, "user": user, "team": team, "group_id": group_id, "server": server, "live": live, "ended": ended, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/allocations", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_allocation(self, body: "NewAllocation", *, dry_run: bool | None = None) -> "Choice" | "CreatedAllocation":
        """Allocate servers or GPUs: those that are named, or what fits a wish."""
        answer: "Choice" | "CreatedAllocation" = self._do("POST", "/allocations", once=True, query={"dry_run": dry_run}, body=body)
        return answer

    def get_allocation(self, id: str) -> "Allocation":
        """One allocation."""
        answer: "Allocation" = self._do("GET", f"/allocations/{_part(id)}")
        return answer

    def update_allocation(self, id: str, body: "ChangedAllocation", *, if_match: str | None = None) -> "Allocation":
        """Change the purpose or the end of a live allocation; what is left out stays as it is."""
        answer: "Allocation" = self._do("PUT", f"/allocations/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_allocation(self, id: str, *, if_match: str | None = None) -> "Allocation":
        """End an allocation: an active one is completed, a pending one fails as cancelled."""
        answer: "Allocation" = self._do("DELETE", f"/allocations/{_part(id)}", if_match=if_match)
        return answer

    def start_allocation(self, id: str) -> "Allocation":
        """Try a failed allocation again, with what fits its wish now or what it named."""
        answer: "Allocation" = self._do("POST", f"/allocations/{_part(id)}/start", once=True)
        return answer

    def get_allocation_status(self, id: str) -> "AllocationStatus":
        """How an allocation is: its workflows step by step, and the state of each of its GPUs."""
        answer: "AllocationStatus" = self._do("GET", f"/allocations/{_part(id)}/status")
        return answer

    def stop_allocation(self, id: str, body: "StoppedAllocation" | None = None) -> "Allocation":
        """End an allocation, as DELETE does, with a report of what was wrong with the hardware."""
        answer: "Allocation" = self._do("POST", f"/allocations/{_part(id)}/stop", once=True, body=body)
        return answer

    def list_assets(self, *, kind: str | None = None, q: str | None = None, within: str | None = None, sort: Literal["name", "-name", "kind", "-kind"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AssetList":
        """List the resources of the inventory by name, with who changed them last."""
        answer: "AssetList" = self._do("GET", "/assets", query={"kind": kind, "q": q, "within": within, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_assets(self, *, kind: str | None = None, q: str | None = None, within: str | None = None, sort: Literal["name", "-name", "kind", "-kind"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Asset"]:
        """List the resources of the inventory by name, with who changed them last."""
        query: dict[str, Any] = {"kind": kind, "q": q, "within": within, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/assets", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_asset(self, id: str) -> "Asset":
        """One resource, there or not any more, with who changed it last."""
        answer: "Asset" = self._do("GET", f"/assets/{_part(id)}")
        return answer

    def list_asset_versions(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AssetVersionList":
        """What a resource was: who changed what, when, and from which source, the latest first; the last 50 are kept."""
        answer: "AssetVersionList" = self._do("GET", f"/assets/{_part(id)}/versions", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_asset_versions(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["AssetVersion"]:
        """What a resource was: who changed what, when, and from which source, the latest first; the last 50 are kept."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/assets/{_part(id)}/versions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_audit(self, *, subject: str | None = None, actor: str | None = None, verb: str | None = None, sort: Literal["seq", "-seq"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AuditList":
        """List the audit: who did what to which machine, and whether the record is intact."""
        answer: "AuditList" = self._do("GET", "/audit", query={"subject": subject, "actor": actor, "verb": verb, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_audit(self, *, subject: str | None = None, actor: str | None = None, verb: str | None = None, sort: Literal["seq", "-seq"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["AuditRow"]:
        """List the audit: who did what to which machine, and whether the record is intact."""
        query: dict[str, Any] = {"subject": subject, "actor": actor, "verb": verb, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/audit", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_capacity(self) -> "Capacity":
        """How much there is of each pool, who has it, and what is stranded and why, as of at most half a second ago."""
        answer: "Capacity" = self._do("GET", "/capacity")
        return answer

    def list_conflicts(self, *, status: Literal["open", "decided", "settled"] | None = None, kind: Literal["two_sources", "cable", "serial_twice"] | None = None, resource: str | None = None, sort: Literal["first_seen", "-first_seen", "last_seen", "-last_seen", "resource", "-resource"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ConflictList":
        """List what is said of resources in two ways, the newest first."""
        answer: "ConflictList" = self._do("GET", "/conflicts", query={"status": status, "kind": kind, "resource": resource, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_conflicts(self, *, status: Literal["open", "decided", "settled"] | None = None, kind: Literal["two_sources", "cable", "serial_twice"] | None = None, resource: str | None = None, sort: Literal["first_seen", "-first_seen", "last_seen", "-last_seen", "resource", "-resource"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Conflict"]:
        """List what is said of resources in two ways, the newest first."""
        query: dict[str, Any] = {"status": status, "kind": kind, "resource": resource, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/conflicts", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_conflict(self, id: str) -> "Conflict":
        """One conflict with both its sides."""
        answer: "Conflict" = self._do("GET", f"/conflicts/{_part(id)}")
        return answer

    def decide_conflict(self, id: str, body: "NewConflictDecision") -> "Conflict":
        """Say which side of a conflict is right."""
        answer: "Conflict" = self._do("POST", f"/conflicts/{_part(id)}", once=True, body=body)
        return answer

    def list_corrections(self, *, since: str | None = None, sort: Literal["time", "-time", "incident", "-incident"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "CorrectionList":
        """What people said about the causes of incidents: the verdict that stands of each, newest first."""
        answer: "CorrectionList" = self._do("GET", "/corrections", query={"since": since, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_corrections(self, *, since: str | None = None, sort: Literal["time", "-time", "incident", "-incident"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Correction"]:
        """What people said about the causes of incidents: the verdict that stands of each, newest first."""
        query: dict[str, Any] = {"since": since, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/corrections", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_discoveries(self, *, status: Literal["waiting", "running", "completed", "failed", "cancelled"] | None = None, sort: Literal["created_at", "-created_at", "addresses", "-addresses"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "DiscoveryList":
        """List sweeps for board controllers, the newest first."""
        answer: "DiscoveryList" = self._do("GET", "/discoveries", query={"status": status, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_discoveries(self, *, status: Literal["waiting", "running", "completed", "failed", "cancelled"] | None = None, sort: Literal["created_at", "-created_at", "addresses", "-addresses"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Discovery"]:
        """List sweeps for board controllers, the newest first."""
        query: dict[str, Any] = {"status": status, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/discoveries", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def start_discovery(self, body: "NewDiscovery") -> "Discovery":
        """Sweep ranges of addresses for board controllers."""
        answer: "Discovery" = self._do("POST", "/discoveries", once=True, body=body)
        return answer

    def get_discovery(self, id: str, *, result: Literal["found", "refused", "unreadable"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "DiscoveryPage":
        """A sweep with what it has found, in the order of addresses."""
        answer: "DiscoveryPage" = self._do("GET", f"/discoveries/{_part(id)}", query={"result": result, "after": after, "limit": limit, "fields": fields})
        return answer

    def cancel_discovery(self, id: str) -> "Discovery":
        """Cancel a sweep; what it has found stays."""
        answer: "Discovery" = self._do("DELETE", f"/discoveries/{_part(id)}")
        return answer

    def list_events(self, *, server: str | None = None, type: str | None = None, severity: Literal["info", "warning", "error", "critical"] | None = None, source: str | None = None, since: str | None = None, until: str | None = None, sort: Literal["observed", "-observed"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "EventList":
        """List events."""
        answer: "EventList" = self._do("GET", "/events", query={"server": server, "type": type, "severity": severity, "source": source, "since": since, "until": until, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_events(self, *, server: str | None = None, type: str | None = None, severity: Literal["info", "warning", "error", "critical"] | None = None, source: str | None = None, since: str | None = None, until: str | None = None, sort: Literal["observed", "-observed"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Event"]:
        """List events."""
        query: dict[str, Any] = {"server": server, "type": type, "severity": severity, "source": source, "since": since, "until": until, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/events", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def post_event(self, body: "NewEvent") -> "Event":
        """Report an event that Auspex does not see itself."""
        answer: "Event" = self._do("POST", "/events", once=True, body=body)
        return answer

    def get_event(self, id: str) -> "Event":
        """One event, of the alerts or of the history."""
        answer: "Event" = self._do("GET", f"/events/{_part(id)}")
        return answer

    def list_faults(self, *, sort: Literal["fault", "-fault"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "FaultList":
        """The faults that can be blamed, each with the kinds of resources that may have it."""
        answer: "FaultList" = self._do("GET", "/faults", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_faults(self, *, sort: Literal["fault", "-fault"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["FaultKinds"]:
        """The faults that can be blamed, each with the kinds of resources that may have it."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/faults", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_fleet(self, *, ids: bool | None = None) -> "Fleet":
        """The whole fleet as columns, one entry per server."""
        answer: "Fleet" = self._do("GET", "/fleet", query={"ids": ids})
        return answer

    def list_gpus(self, *, server: str | None = None, status: Literal["available", "allocated", "in_use", "error"] | None = None, model: str | None = None, pool: str | None = None, gone: bool | None = None, sort: Literal["name", "-name", "model", "-model", "status", "-status", "updated_at", "-updated_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "GPUList":
        """List the GPUs of the inventory by name."""
        answer: "GPUList" = self._do("GET", "/gpus", query={"server": server, "status": status, "model": model, "pool": pool, "gone": gone, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_gpus(self, *, server: str | None = None, status: Literal["available", "allocated", "in_use", "error"] | None = None, model: str | None = None, pool: str | None = None, gone: bool | None = None, sort: Literal["name", "-name", "model", "-model", "status", "-status", "updated_at", "-updated_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["GPU"]:
        """List the GPUs of the inventory by name."""
        query: dict[str, Any] = {"server": server, "status": status, "model": model, "pool": pool, "gone": gone, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/gpus", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_gpu(self, id: str) -> "GPU":
        """One GPU."""
        answer: "GPU" = self._do("GET", f"/gpus/{_part(id)}")
        return answer

    def update_gpu(self, id: str, body: "ChangedGPU", *, if_match: str | None = None) -> "GPU":
        """Change a GPU; what is left out stays as it is."""
        answer: "GPU" = self._do("PUT", f"/gpus/{_part(id)}", if_match=if_match, body=body)
        return answer

    def get_gpu_config(self, id: str) -> "GPUConfig":
        """What a GPU is to be configured as."""
        answer: "GPUConfig" = self._do("GET", f"/gpus/{_part(id)}/config")
        return answer

    def create_gpu_config(self, id: str, body: "NewGPUConfig", *, if_match: str | None = None) -> "GPUConfig":
        """Say anew what a GPU is to be configured as; what is left out is left as it is on the GPU."""
        answer: "GPUConfig" = self._do("POST", f"/gpus/{_part(id)}/config", if_match=if_match, once=True, body=body)
        return answer

    def update_gpu_config(self, id: str, body: "NewGPUConfig", *, if_match: str | None = None) -> "GPUConfig":
        """Change what a GPU is to be configured as; what is left out stays as it was."""
        answer: "GPUConfig" = self._do("PUT", f"/gpus/{_part(id)}/config", if_match=if_match, once=True, body=body)
        return answer

    def apply_gpu_config(self, id: str) -> "Operation":
        """Have control set a GPU as its latest configuration says."""
        answer: "Operation" = self._do("POST", f"/gpus/{_part(id)}/config/apply", once=True)
        return answer

    def list_gpu_configs(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "GPUConfigList":
        """List the versions of the configuration of a GPU, the latest first."""
        answer: "GPUConfigList" = self._do("GET", f"/gpus/{_part(id)}/config/versions", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_gpu_configs(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["GPUConfig"]:
        """List the versions of the configuration of a GPU, the latest first."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/gpus/{_part(id)}/config/versions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_gpu_metrics(self, id: str, *, from_: str | None = None, to: str | None = None, step: int | None = None, metrics: str | None = None) -> "GPUMetricColumns":
        """Readings of a GPU over a range, as columns."""
        answer: "GPUMetricColumns" = self._do("GET", f"/gpus/{_part(id)}/metrics", query={"from": from_, "to": to, "step": step, "metrics": metrics})
        return answer

    def get_gpu_status(self, id: str) -> "GPUStatus":
        """What a GPU does now; null where nobody reads it."""
        answer: "GPUStatus" = self._do("GET", f"/gpus/{_part(id)}/status")
        return answer

    def list_grants(self, *, pool: str | None = None, sort: Literal["created_at", "-created_at", "pool", "-pool"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "GrantList":
        """List what is granted in pools, the oldest first; needs the permission `users`, which admins have."""
        answer: "GrantList" = self._do("GET", "/grants", query={"pool": pool, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_grants(self, *, pool: str | None = None, sort: Literal["created_at", "-created_at", "pool", "-pool"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Grant"]:
        """List what is granted in pools, the oldest first; needs the permission `users`, which admins have."""
        query: dict[str, Any] = {"pool": pool, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/grants", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_grant(self, body: "NewGrant") -> "Grant":
        """Let a user, the members of a team, or a token that is nobody's do in one pool what a role may do to servers."""
        answer: "Grant" = self._do("POST", "/grants", once=True, body=body)
        return answer

    def get_grant(self, id: str) -> "Grant":
        """One grant."""
        answer: "Grant" = self._do("GET", f"/grants/{_part(id)}")
        return answer

    def delete_grant(self, id: str) -> None:
        """Take a grant back, which counts at the next request."""
        self._do("DELETE", f"/grants/{_part(id)}")

    def list_hardware(self, *, server: str | None = None, lacks: Literal["architecture", "boot_mode", "boot_mac", "boot_disk", "bmc_address", "bmc_kind", "bmc_credential"] | None = None, installable: bool | None = None, sort: Literal["name", "-name", "model", "-model"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "HardwareRecordList":
        """List servers as an installer sees them, by name."""
        answer: "HardwareRecordList" = self._do("GET", "/hardware", query={"server": server, "lacks": lacks, "installable": installable, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_hardware(self, *, server: str | None = None, lacks: Literal["architecture", "boot_mode", "boot_mac", "boot_disk", "bmc_address", "bmc_kind", "bmc_credential"] | None = None, installable: bool | None = None, sort: Literal["name", "-name", "model", "-model"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["HardwareRecord"]:
        """List servers as an installer sees them, by name."""
        query: dict[str, Any] = {"server": server, "lacks": lacks, "installable": installable, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/hardware", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_hardware(self, server: str) -> "HardwareRecord":
        """A server as an installer sees it: what the inventory knows, what people say otherwise, and what lacks."""
        answer: "HardwareRecord" = self._do("GET", f"/hardware/{_part(server)}")
        return answer

    def put_hardware(self, server: str, body: "NewHardwareOverrides", *, if_match: str | None = None) -> "HardwareRecord":
        """Say of a server what the inventory does not, or says wrongly; what is left out is left to the inventory."""
        answer: "HardwareRecord" = self._do("PUT", f"/hardware/{_part(server)}", if_match=if_match, body=body)
        return answer

    def list_incidents(self, *, status: Literal["open", "closed", "merged"] | None = None, since: str | None = None, sort: Literal["opened", "-opened"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "IncidentList":
        """List incidents: causes with everything they explain."""
        answer: "IncidentList" = self._do("GET", "/incidents", query={"status": status, "since": since, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_incidents(self, *, status: Literal["open", "closed", "merged"] | None = None, since: str | None = None, sort: Literal["opened", "-opened"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Incident"]:
        """List incidents: causes with everything they explain."""
        query: dict[str, Any] = {"status": status, "since": since, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/incidents", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_incident_record(self) -> "IncidentRecord":
        """How right the causes were, by what people said about them."""
        answer: "IncidentRecord" = self._do("GET", "/incidents/record")
        return answer

    def get_incident(self, id: str) -> "Incident":
        """One incident with its evidence."""
        answer: "Incident" = self._do("GET", f"/incidents/{_part(id)}")
        return answer

    def list_incident_corrections(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "CorrectionList":
        """What people said about the cause of an incident, newest first."""
        answer: "CorrectionList" = self._do("GET", f"/incidents/{_part(id)}/corrections", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_incident_corrections(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["Correction"]:
        """What people said about the cause of an incident, newest first."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/incidents/{_part(id)}/corrections", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def correct_incident(self, id: str, body: "NewCorrection") -> "Correction":
        """Say what the cause of an incident was."""
        answer: "Correction" = self._do("POST", f"/incidents/{_part(id)}/corrections", once=True, body=body)
        return answer

    def list_join_tokens(self, *, sort: Literal["name", "-name", "created", "-created", "expires", "-expires"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "JoinTokenList":
        """List the tokens with which node agents join, by name, without their secrets."""
        answer: "JoinTokenList" = self._do("GET", "/join-tokens", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_join_tokens(self, *, sort: Literal["name", "-name", "created", "-created", "expires", "-expires"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["JoinToken"]:
        """List the tokens with which node agents join, by name, without their secrets."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/join-tokens", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_join_token(self, body: "NewJoinToken") -> "JoinToken":
        """Create a join token; its secret is shown once and stored as a hash."""
        answer: "JoinToken" = self._do("POST", "/join-tokens", once=True, body=body)
        return answer

    def revoke_join_token(self, name: str) -> None:
        """Revoke a join token, and cut off the machines that joined with it."""
        self._do("DELETE", f"/join-tokens/{_part(name)}")

    def list_edge_proposals(self, *, state: Literal["open", "accepted", "declined", "withdrawn"] | None = None, sort: Literal["gain", "-gain", "found", "-found"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "EdgeProposalList":
        """Proposals of which kinds of events bring about which others, as counted from lags: open ones first, the surest first."""
        answer: "EdgeProposalList" = self._do("GET", "/learning/edges", query={"state": state, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_edge_proposals(self, *, state: Literal["open", "accepted", "declined", "withdrawn"] | None = None, sort: Literal["gain", "-gain", "found", "-found"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["EdgeProposal"]:
        """Proposals of which kinds of events bring about which others, as counted from lags: open ones first, the surest first."""
        query: dict[str, Any] = {"state": state, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/learning/edges", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def decide_edge_proposal(self, id: str, body: "NewEdgeDecision") -> "EdgeProposal":
        """Accept a proposal, decline it, or take an acceptance back."""
        answer: "EdgeProposal" = self._do("POST", f"/learning/edges/{_part(id)}/decisions", once=True, body=body)
        return answer

    def login(self, body: "Credential") -> "Me":
        """Exchange a one-time code or a token for a session cookie."""
        answer: "Me" = self._do("POST", "/login", body=body)
        return answer

    def create_login_code(self) -> "LoginCode":
        """Create a one-time login code for a browser; it is valid for 15 minutes."""
        answer: "LoginCode" = self._do("POST", "/login-codes", once=True)
        return answer

    def get_login_methods(self) -> "LoginMethods":
        """How a browser may log in, beside a code or a token."""
        answer: "LoginMethods" = self._do("GET", "/login-methods")
        return answer

    def logout(self) -> None:
        """End the session of this cookie."""
        self._do("POST", "/logout")

    def list_machines(self, *, sort: Literal["key", "-key", "joined", "-joined", "seen", "-seen"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "MachineList":
        """List the machines that have joined, by key, and where they stand in the inventory."""
        answer: "MachineList" = self._do("GET", "/machines", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_machines(self, *, sort: Literal["key", "-key", "joined", "-joined", "seen", "-seen"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Machine"]:
        """List the machines that have joined, by key, and where they stand in the inventory."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/machines", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def revoke_machine(self, key: str) -> None:
        """Revoke one machine and cut it off; its use of its token stays used."""
        self._do("DELETE", f"/machines/{_part(key)}")

    def list_maintenance(self, *, open: bool | None = None, resource: str | None = None, sort: Literal["declared", "-declared", "from", "-from"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "MaintenanceList":
        """List maintenance windows, the last declared first."""
        answer: "MaintenanceList" = self._do("GET", "/maintenance", query={"open": open, "resource": resource, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_maintenance(self, *, open: bool | None = None, resource: str | None = None, sort: Literal["declared", "-declared", "from", "-from"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Maintenance"]:
        """List maintenance windows, the last declared first."""
        query: dict[str, Any] = {"open": open, "resource": resource, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/maintenance", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def declare_maintenance(self, body: "NewMaintenance") -> "Maintenance":
        """Declare maintenance of some resources and all that is below them."""
        answer: "Maintenance" = self._do("POST", "/maintenance", once=True, body=body)
        return answer

    def get_maintenance(self, id: str) -> "Maintenance":
        """One maintenance window."""
        answer: "Maintenance" = self._do("GET", f"/maintenance/{_part(id)}")
        return answer

    def update_maintenance(self, id: str, body: "ChangedMaintenance", *, if_match: str | None = None) -> "Maintenance":
        """Change the end, the reason or the grace of a maintenance window that is not over; what is left out stays as it is."""
        answer: "Maintenance" = self._do("PUT", f"/maintenance/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_maintenance(self, id: str, *, if_match: str | None = None) -> None:
        """Withdraw a maintenance window: it ends now, or never begins. It stays in the list, as over."""
        self._do("DELETE", f"/maintenance/{_part(id)}", if_match=if_match)

    def end_maintenance(self, id: str) -> "Maintenance":
        """End a maintenance window now; one that is over stays as it is."""
        answer: "Maintenance" = self._do("POST", f"/maintenance/{_part(id)}/end", once=True)
        return answer

    def get_me(self) -> "Me":
        """The caller, their permissions, and the mode of control."""
        answer: "Me" = self._do("GET", "/me")
        return answer

    def list_notices(self, *, type: str | None = None, subject: str | None = None, since: str | None = None, sort: Literal["time", "-time", "type", "-type"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "NoticeList":
        """List what people were told of what they have in the last 30 days: an allocation is ready, has failed or ended, ends soon, or hardware of it degrades or is repaired."""
        answer: "NoticeList" = self._do("GET", "/notices", query={"type": type, "subject": subject, "since": since, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_notices(self, *, type: str | None = None, subject: str | None = None, since: str | None = None, sort: Literal["time", "-time", "type", "-type"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Notice"]:
        """List what people were told of what they have in the last 30 days: an allocation is ready, has failed or ended, ends soon, or hardware of it degrades or is repaired."""
        query: dict[str, Any] = {"type": type, "subject": subject, "since": since, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/notices", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_operations(self, *, state: Literal["pending", "proposed", "waiting", "approved", "running", "verifying", "done", "failed", "unknown", "cancelled", "refused"] | None = None, server: str | None = None, sort: Literal["created_at", "-created_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "OperationList":
        """List what people, allocations and workflows asked for, newest first."""
        answer: "OperationList" = self._do("GET", "/operations", query={"state": state, "server": server, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_operations(self, *, state: Literal["pending", "proposed", "waiting", "approved", "running", "verifying", "done", "failed", "unknown", "cancelled", "refused"] | None = None, server: str | None = None, sort: Literal["created_at", "-created_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Operation"]:
        """List what people, allocations and workflows asked for, newest first."""
        query: dict[str, Any] = {"state": state, "server": server, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/operations", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_operation(self, id: str) -> "Operation":
        """How far an operation is."""
        answer: "Operation" = self._do("GET", f"/operations/{_part(id)}")
        return answer

    def power_server_operation(self, id: str, body: "PowerRequest") -> "Operation":
        """The same as `/servers/{id}/power`; the id is that of a server."""
        answer: "Operation" = self._do("POST", f"/operations/{_part(id)}/power", once=True, body=body)
        return answer

    def list_pools(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "PoolList":
        """List pools by name."""
        answer: "PoolList" = self._do("GET", "/pools", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_pools(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Pool"]:
        """List pools by name."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/pools", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_pool(self, body: "NewPool") -> "Pool":
        """Create a pool; needs the permission `quotas`, which admins have."""
        answer: "Pool" = self._do("POST", "/pools", once=True, body=body)
        return answer

    def get_pool(self, id: str) -> "Pool":
        """One pool."""
        answer: "Pool" = self._do("GET", f"/pools/{_part(id)}")
        return answer

    def update_pool(self, id: str, body: "ChangedPool", *, if_match: str | None = None) -> "Pool":
        """Change a pool; what is left out stays as it is. Needs the permission `quotas`."""
        answer: "Pool" = self._do("PUT", f"/pools/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_pool(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a pool. Needs the permission `quotas`."""
        self._do("DELETE", f"/pools/{_part(id)}", if_match=if_match)

    def list_predictions(self, *, state: Literal["open", "came_true", "averted", "expired"] | None = None, server: str | None = None, sort: Literal["time", "-time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "PredictionList":
        """List predictions: what fails next, and when."""
        answer: "PredictionList" = self._do("GET", "/predictions", query={"state": state, "server": server, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_predictions(self, *, state: Literal["open", "came_true", "averted", "expired"] | None = None, server: str | None = None, sort: Literal["time", "-time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Prediction"]:
        """List predictions: what fails next, and when."""
        query: dict[str, Any] = {"state": state, "server": server, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/predictions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_prediction_record(self) -> "PredictionRecord":
        """How past predictions ended."""
        answer: "PredictionRecord" = self._do("GET", "/predictions/record")
        return answer

    def list_proposals(self, *, state: Literal["open", "accepted", "declined"] | None = None, sort: Literal["time", "-time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ProposalList":
        """List what node agents propose for the inventory, the newest first."""
        answer: "ProposalList" = self._do("GET", "/proposals", query={"state": state, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_proposals(self, *, state: Literal["open", "accepted", "declined"] | None = None, sort: Literal["time", "-time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Proposal"]:
        """List what node agents propose for the inventory, the newest first."""
        query: dict[str, Any] = {"state": state, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/proposals", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_proposal(self, id: str) -> "Proposal":
        """One proposal with its differences."""
        answer: "Proposal" = self._do("GET", f"/proposals/{_part(id)}")
        return answer

    def decide_proposal(self, id: str, body: "NewProposalDecision") -> "Proposal":
        """Accept a proposal, or decline it."""
        answer: "Proposal" = self._do("POST", f"/proposals/{_part(id)}/decisions", once=True, body=body)
        return answer

    def list_quotas(self, *, sort: Literal["created_at", "-created_at", "updated_at", "-updated_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "QuotaList":
        """List quotas, the first made first, those of other teams left out unless you may change the inventory, and what is used of them."""
        answer: "QuotaList" = self._do("GET", "/quotas", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_quotas(self, *, sort: Literal["created_at", "-created_at", "updated_at", "-updated_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Quota"]:
        """List quotas, the first made first, those of other teams left out unless you may change the inventory, and what is used of them."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/quotas", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_quota(self, body: "NewQuota") -> "Quota":
        """Create a quota; needs the permission `quotas`, which admins have."""
        answer: "Quota" = self._do("POST", "/quotas", once=True, body=body)
        return answer

    def get_quota(self, id: str) -> "Quota":
        """One quota."""
        answer: "Quota" = self._do("GET", f"/quotas/{_part(id)}")
        return answer

    def update_quota(self, id: str, body: "ChangedQuota", *, if_match: str | None = None) -> "Quota":
        """Change a quota; a limit that is left out is none. Needs the permission `quotas`."""
        answer: "Quota" = self._do("PUT", f"/quotas/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_quota(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a quota. Needs the permission `quotas`."""
        self._do("DELETE", f"/quotas/{_part(id)}", if_match=if_match)

    def list_refused_descriptions(self, *, sort: Literal["since", "-since", "read", "-read"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "RefusedDescriptionList":
        """List the node agents whose description of their machine is not taken, and why."""
        answer: "RefusedDescriptionList" = self._do("GET", "/refused-descriptions", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_refused_descriptions(self, *, sort: Literal["since", "-since", "read", "-read"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["RefusedDescription"]:
        """List the node agents whose description of their machine is not taken, and why."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/refused-descriptions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_reservations(self, *, sort: Literal["name", "-name", "start_time", "-start_time", "end_time", "-end_time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ReservationList":
        """List reservations by name, those of other teams left out unless you may change the inventory."""
        answer: "ReservationList" = self._do("GET", "/reservations", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_reservations(self, *, sort: Literal["name", "-name", "start_time", "-start_time", "end_time", "-end_time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Reservation"]:
        """List reservations by name, those of other teams left out unless you may change the inventory."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/reservations", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_reservation(self, body: "NewReservation") -> "Reservation":
        """Create a reservation; needs the permission `quotas`, which admins have."""
        answer: "Reservation" = self._do("POST", "/reservations", once=True, body=body)
        return answer

    def get_reservation(self, id: str) -> "Reservation":
        """One reservation."""
        answer: "Reservation" = self._do("GET", f"/reservations/{_part(id)}")
        return answer

    def update_reservation(self, id: str, body: "ChangedReservation", *, if_match: str | None = None) -> "Reservation":
        """Change a reservation; what is left out stays as it is. Needs the permission `quotas`."""
        answer: "Reservation" = self._do("PUT", f"/reservations/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_reservation(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a reservation. Needs the permission `quotas`."""
        self._do("DELETE", f"/reservations/{_part(id)}", if_match=if_match)

    def list_resources(self, *, kind: str | None = None, find: str | None = None, within: str | None = None, sort: Literal["name", "-name", "kind", "-kind"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ResourceList":
        """List the resources of the inventory by name."""
        answer: "ResourceList" = self._do("GET", "/resources", query={"kind": kind, "find": find, "within": within, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_resources(self, *, kind: str | None = None, find: str | None = None, within: str | None = None, sort: Literal["name", "-name", "kind", "-kind"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["ResourceRef"]:
        """List the resources of the inventory by name."""
        query: dict[str, Any] = {"kind": kind, "find": find, "within": within, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/resources", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def get_resource(self, id: str) -> "Resource":
        """One resource, its parents and its direct parts."""
        answer: "Resource" = self._do("GET", f"/resources/{_part(id)}")
        return answer

    def search(self, *, q: str, kind: str | None = None, limit: int | None = None) -> "SearchResults":
        """Find resources, incidents and people by a part of what they are called."""
        answer: "SearchResults" = self._do("GET", "/search", query={"q": q, "kind": kind, "limit": limit})
        return answer

    def list_servers(self, *, status: Literal["discovered", "provisioning", "ready", "error", "retired"] | None = None, pool: str | None = None, model: str | None = None, label: str | None = None, gone: bool | None = None, sort: Literal["name", "-name", "model", "-model", "status", "-status", "status_since", "-status_since", "updated_at", "-updated_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ServerRecordList":
        """List the servers of the inventory by name, with what they are given to people by."""
        answer: "ServerRecordList" = self._do("GET", "/servers", query={"status": status, "pool": pool, "model": model, "label": label, "gone": gone, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_servers(self, *, status: Literal["discovered", "provisioning", "ready", "error", "retired"] | None = None, pool: str | None = None, model: str | None = None, label: str | None = None, gone: bool | None = None, sort: Literal["name", "-name", "model", "-model", "status", "-status", "status_since", "-status_since", "updated_at", "-updated_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["ServerRecord"]:
        """List the servers of the inventory by name, with what they are given to people by."""
        query: dict[str, Any] = {"status": status, "pool": pool, "model": model, "label": label, "gone": gone, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/servers", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def register_server(self, body: "NewServer") -> "ServerRecord":
        """Register a server."""
        answer: "ServerRecord" = self._do("POST", "/servers", once=True, body=body)
        return answer

    def get_server(self, id: str) -> "Server":
        """A server or switch with its parts, alerts, predictions and actions."""
        answer: "Server" = self._do("GET", f"/servers/{_part(id)}")
        return answer

    def update_server(self, id: str, body: "ChangedServer", *, if_match: str | None = None) -> "ServerRecord":
        """Change a server; what is left out stays as it is."""
        answer: "ServerRecord" = self._do("PUT", f"/servers/{_part(id)}", if_match=if_match, body=body)
        return answer

    def retire_server(self, id: str, *, if_match: str | None = None) -> None:
        """Retire a server."""
        self._do("DELETE", f"/servers/{_part(id)}", if_match=if_match)

    def set_server_bios(self, id: str, body: "BiosRequest") -> "Operation":
        """Set BIOS attributes of a server."""
        answer: "Operation" = self._do("POST", f"/servers/{_part(id)}/bios", once=True, body=body)
        return answer

    def get_server_config(self, id: str) -> "ServerConfig":
        """What a server is to be configured as."""
        answer: "ServerConfig" = self._do("GET", f"/servers/{_part(id)}/config")
        return answer

    def put_server_config(self, id: str, body: "NewServerConfig", *, if_match: str | None = None) -> "ServerConfig":
        """Say what a server is to be configured as; what is left out stays as it was."""
        answer: "ServerConfig" = self._do("PUT", f"/servers/{_part(id)}/config", if_match=if_match, once=True, body=body)
        return answer

    def apply_server_config(self, id: str) -> "Operation":
        """Have control set a server as its latest configuration says."""
        answer: "Operation" = self._do("POST", f"/servers/{_part(id)}/config/apply", once=True)
        return answer

    def list_server_configs(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ServerConfigList":
        """List the versions of the configuration of a server, the latest first."""
        answer: "ServerConfigList" = self._do("GET", f"/servers/{_part(id)}/config/versions", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_server_configs(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["ServerConfig"]:
        """List the versions of the configuration of a server, the latest first."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/servers/{_part(id)}/config/versions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def update_server_firmware(self, id: str, body: "FirmwareRequest") -> "Operation":
        """Update firmware of a server."""
        answer: "Operation" = self._do("POST", f"/servers/{_part(id)}/firmware", once=True, body=body)
        return answer

    def list_server_gpus(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "GPUList":
        """List the GPUs of a server by name."""
        answer: "GPUList" = self._do("GET", f"/servers/{_part(id)}/gpus", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_server_gpus(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["GPU"]:
        """List the GPUs of a server by name."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/servers/{_part(id)}/gpus", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def register_gpu(self, id: str, body: "NewGPU") -> "GPU":
        """Register a GPU of a server."""
        answer: "GPU" = self._do("POST", f"/servers/{_part(id)}/gpus", once=True, body=body)
        return answer

    def get_server_plots(self, id: str, *, range: Literal["15m", "1h", "6h", "24h"] | None = None, part: str | None = None) -> "PlotList":
        """Plots of a device over a range that ends now."""
        answer: "PlotList" = self._do("GET", f"/servers/{_part(id)}/plots", query={"range": range, "part": part})
        return answer

    def pool_server(self, id: str, body: "PoolRequest") -> "Operation":
        """Take a server out of its scheduler, keep it out, or give it back."""
        answer: "Operation" = self._do("POST", f"/servers/{_part(id)}/pool", once=True, body=body)
        return answer

    def power_server(self, id: str, body: "PowerRequest") -> "Operation":
        """Turn a server on or off, restart it, or send it a diagnostic interrupt."""
        answer: "Operation" = self._do("POST", f"/servers/{_part(id)}/power", once=True, body=body)
        return answer

    def get_server_status(self, id: str) -> "ServerStatus":
        """What a server does now; null where nobody reads it."""
        answer: "ServerStatus" = self._do("GET", f"/servers/{_part(id)}/status")
        return answer

    def list_server_validations(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "ValidationList":
        """List what was found of a server when it was validated, the latest first."""
        answer: "ValidationList" = self._do("GET", f"/servers/{_part(id)}/validations", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_server_validations(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["Validation"]:
        """List what was found of a server when it was validated, the latest first."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/servers/{_part(id)}/validations", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_server_wipes(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "WipeList":
        """List what was found of the drives of a server after they were to be wiped, the latest first."""
        answer: "WipeList" = self._do("GET", f"/servers/{_part(id)}/wipes", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_server_wipes(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["Wipe"]:
        """List what was found of the drives of a server after they were to be wiped, the latest first."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/servers/{_part(id)}/wipes", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_teams(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "TeamList":
        """List teams by name; without the permission `users`, only your own."""
        answer: "TeamList" = self._do("GET", "/teams", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_teams(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Team"]:
        """List teams by name; without the permission `users`, only your own."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/teams", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_team(self, body: "NewTeam") -> "Team":
        """Create a team; needs the permission `users`."""
        answer: "Team" = self._do("POST", "/teams", once=True, body=body)
        return answer

    def get_team(self, id: str) -> "Team":
        """One team; without the permission `users`, one of your own."""
        answer: "Team" = self._do("GET", f"/teams/{_part(id)}")
        return answer

    def update_team(self, id: str, body: "ChangedTeam", *, if_match: str | None = None) -> "Team":
        """Change a team; what is left out stays as it is. Needs the permission `users`."""
        answer: "Team" = self._do("PUT", f"/teams/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_team(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a team; its members stay. Needs the permission `users`."""
        self._do("DELETE", f"/teams/{_part(id)}", if_match=if_match)

    def list_templates(self, *, status: Literal["active", "retired"] | None = None, os_family: Literal["talos", "flatcar", "ubuntu", "other"] | None = None, sort: Literal["name", "-name", "created_at", "-created_at", "updated_at", "-updated_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "TemplateList":
        """List the templates of installations by name, without their texts."""
        answer: "TemplateList" = self._do("GET", "/templates", query={"status": status, "os_family": os_family, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_templates(self, *, status: Literal["active", "retired"] | None = None, os_family: Literal["talos", "flatcar", "ubuntu", "other"] | None = None, sort: Literal["name", "-name", "created_at", "-created_at", "updated_at", "-updated_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Template"]:
        """List the templates of installations by name, without their texts."""
        query: dict[str, Any] = {"status": status, "os_family": os_family, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/templates", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_template(self, body: "NewTemplate", *, dry_run: bool | None = None) -> "Template":
        """Create a template, with its first version; needs the permission `inventory`, which engineers and admins have."""
        answer: "Template" = self._do("POST", "/templates", once=True, query={"dry_run": dry_run}, body=body)
        return answer

    def get_template(self, id: str, *, version: int | None = None) -> "Template":
        """One template, as its latest version has it or as another one has."""
        answer: "Template" = self._do("GET", f"/templates/{_part(id)}", query={"version": version})
        return answer

    def update_template(self, id: str, body: "ChangedTemplate", *, if_match: str | None = None, dry_run: bool | None = None) -> "Template":
        """Make the next version of a template, or retire it; what is left out stays as it is. Needs the permission `inventory`."""
        answer: "Template" = self._do("PUT", f"/templates/{_part(id)}", if_match=if_match, query={"dry_run": dry_run}, body=body)
        return answer

    def delete_template(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a template that nothing refers to, with its versions. Needs the permission `inventory`."""
        self._do("DELETE", f"/templates/{_part(id)}", if_match=if_match)

    def render_template(self, id: str, body: "NewRendering") -> "RenderedTemplate":
        """Fill a template in for a server, and store nothing."""
        answer: "RenderedTemplate" = self._do("POST", f"/templates/{_part(id)}/render", body=body)
        return answer

    def list_template_versions(self, id: str, *, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "TemplateVersionList":
        """List the versions of a template, the latest first, without their texts."""
        answer: "TemplateVersionList" = self._do("GET", f"/templates/{_part(id)}/versions", query={"after": after, "limit": limit, "fields": fields})
        return answer

    def iter_template_versions(self, id: str, *, limit: int | None = None, fields: str | None = None) -> Iterator["TemplateVersion"]:
        """List the versions of a template, the latest first, without their texts."""
        query: dict[str, Any] = {"limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/templates/{_part(id)}/versions", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_tokens(self, *, sort: Literal["name", "-name", "created", "-created", "last_used", "-last_used"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "TokenList":
        """List tokens, by name where no order is asked for; needs the permission `tokens`, which admins have."""
        answer: "TokenList" = self._do("GET", "/tokens", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_tokens(self, *, sort: Literal["name", "-name", "created", "-created", "last_used", "-last_used"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Token"]:
        """List tokens, by name where no order is asked for; needs the permission `tokens`, which admins have."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/tokens", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_token(self, body: "NewToken") -> "CreatedToken":
        """Create a token; its secret is shown once and stored as a hash."""
        answer: "CreatedToken" = self._do("POST", "/tokens", once=True, body=body)
        return answer

    def get_token(self, name: str) -> "Token":
        """One token, without its secret; needs the permission `tokens`."""
        answer: "Token" = self._do("GET", f"/tokens/{_part(name)}")
        return answer

    def update_token(self, name: str, body: "ChangedToken", *, if_match: str | None = None) -> "Token":
        """Change what a token may do or until when it is valid; what is left out stays as it is."""
        answer: "Token" = self._do("PUT", f"/tokens/{_part(name)}", if_match=if_match, body=body)
        return answer

    def revoke_token(self, name: str) -> None:
        """Revoke a token and end its sessions and their streams at once."""
        self._do("DELETE", f"/tokens/{_part(name)}")

    def list_users(self, *, role: Literal["viewer", "operator", "engineer", "admin"] | None = None, status: Literal["active", "inactive"] | None = None, sort: Literal["username", "-username", "email", "-email", "created_at", "-created_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "UserList":
        """List users by name; without the permission `users`, only yourself and those of your teams."""
        answer: "UserList" = self._do("GET", "/users", query={"role": role, "status": status, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_users(self, *, role: Literal["viewer", "operator", "engineer", "admin"] | None = None, status: Literal["active", "inactive"] | None = None, sort: Literal["username", "-username", "email", "-email", "created_at", "-created_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["User"]:
        """List users by name; without the permission `users`, only yourself and those of your teams."""
        query: dict[str, Any] = {"role": role, "status": status, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/users", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_user(self, body: "NewUser") -> "User":
        """Create a user; needs the permission `users`, which admins have."""
        answer: "User" = self._do("POST", "/users", once=True, body=body)
        return answer

    def get_user(self, id: str) -> "User":
        """One user; without the permission `users`, only yourself and those of your teams."""
        answer: "User" = self._do("GET", f"/users/{_part(id)}")
        return answer

    def update_user(self, id: str, body: "ChangedUser", *, if_match: str | None = None) -> "User":
        """Change a user; what is left out stays as it is."""
        answer: "User" = self._do("PUT", f"/users/{_part(id)}", if_match=if_match, body=body)
        return answer

    def list_user_allocations(self, id: str, *, live: bool | None = None, sort: Literal["created_at", "-created_at", "start_time", "-start_time", "end_time", "-end_time"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "AllocationList":
        """List the allocations of a user, the last made first."""
        answer: "AllocationList" = self._do("GET", f"/users/{_part(id)}/allocations", query={"live": live, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_user_allocations(self, id: str, *, live: bool | None = None, sort: Literal["created_at", "-created_at", "start_time", "-start_time", "end_time", "-end_time"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Allocation"]:
        """List the allocations of a user, the last made first."""
        query: dict[str, Any] = {"live": live, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/users/{_part(id)}/allocations", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def list_webhooks(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "WebhookList":
        """List webhooks by name, without their secrets; needs the permission `webhooks`, which admins have."""
        answer: "WebhookList" = self._do("GET", "/webhooks", query={"sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_webhooks(self, *, sort: Literal["name", "-name", "created_at", "-created_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Webhook"]:
        """List webhooks by name, without their secrets; needs the permission `webhooks`, which admins have."""
        query: dict[str, Any] = {"sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/webhooks", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_webhook(self, body: "NewWebhook") -> "Webhook":
        """Create a webhook; needs the permission `webhooks`."""
        answer: "Webhook" = self._do("POST", "/webhooks", once=True, body=body)
        return answer

    def get_webhook(self, id: str) -> "Webhook":
        """One webhook, without its secret; needs the permission `webhooks`."""
        answer: "Webhook" = self._do("GET", f"/webhooks/{_part(id)}")
        return answer

    def update_webhook(self, id: str, body: "ChangedWebhook", *, if_match: str | None = None) -> "Webhook":
        """Change a webhook; what is left out stays as it is. Needs the permission `webhooks`."""
        answer: "Webhook" = self._do("PUT", f"/webhooks/{_part(id)}", if_match=if_match, body=body)
        return answer

    def delete_webhook(self, id: str, *, if_match: str | None = None) -> None:
        """Remove a webhook with its deliveries. Needs the permission `webhooks`."""
        self._do("DELETE", f"/webhooks/{_part(id)}", if_match=if_match)

    def list_deliveries(self, id: str, *, state: Literal["pending", "delivered", "dead"] | None = None, sort: Literal["created_at", "-created_at", "attempts", "-attempts"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "DeliveryList":
        """List what was sent to a webhook in the last 30 days, or waits, the newest first; needs the permission `webhooks`."""
        answer: "DeliveryList" = self._do("GET", f"/webhooks/{_part(id)}/deliveries", query={"state": state, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_deliveries(self, id: str, *, state: Literal["pending", "delivered", "dead"] | None = None, sort: Literal["created_at", "-created_at", "attempts", "-attempts"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Delivery"]:
        """List what was sent to a webhook in the last 30 days, or waits, the newest first; needs the permission `webhooks`."""
        query: dict[str, Any] = {"state": state, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", f"/webhooks/{_part(id)}/deliveries", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def test_webhook(self, id: str) -> "Delivery":
        """Send a notice of the type `webhook.test` to a webhook, whatever its topics are; needs the permission `webhooks`."""
        answer: "Delivery" = self._do("POST", f"/webhooks/{_part(id)}/test", once=True)
        return answer

    def list_workflows(self, *, status: Literal["pending", "running", "completed", "failed"] | None = None, type: Literal["deploy", "cleanup", "config", "validate", "bring_up"] | None = None, server: str | None = None, allocation: str | None = None, sort: Literal["created_at", "-created_at", "updated_at", "-updated_at"] | None = None, after: str | None = None, limit: int | None = None, fields: str | None = None) -> "WorkflowList":
        """List workflows, the last made first."""
        answer: "WorkflowList" = self._do("GET", "/workflows", query={"status": status, "type": type, "server": server, "allocation": allocation, "sort": sort, "after": after, "limit": limit, "fields": fields})
        return answer

    def iter_workflows(self, *, status: Literal["pending", "running", "completed", "failed"] | None = None, type: Literal["deploy", "cleanup", "config", "validate", "bring_up"] | None = None, server: str | None = None, allocation: str | None = None, sort: Literal["created_at", "-created_at", "updated_at", "-updated_at"] | None = None, limit: int | None = None, fields: str | None = None) -> Iterator["Workflow"]:
        """List workflows, the last made first."""
        query: dict[str, Any] = {"status": status, "type": type, "server": server, "allocation": allocation, "sort": sort, "limit": limit, "fields": fields}
        while True:
            page = self._do("GET", "/workflows", query=query)
            yield from page["items"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def create_workflow(self, body: "NewWorkflow", *, dry_run: bool | None = None) -> "Workflow":
        """Run a workflow on a server; one that is discovered is made ready by `bring_up`, or by `validate` where nothing is to be done to it."""
        answer: "Workflow" = self._do("POST", "/workflows", once=True, query={"dry_run": dry_run}, body=body)
        return answer

    def cleanup_allocation(self, body: "WorkflowOfAllocation") -> "Workflow":
        """Run the cleaning of a server of an allocation that has ended again, where it failed."""
        answer: "Workflow" = self._do("POST", "/workflows/cleanup", once=True, body=body)
        return answer

    def deploy_allocation(self, body: "WorkflowOfAllocation") -> "Workflow":
        """Run the deployment of a server of an allocation again, where it failed."""
        answer: "Workflow" = self._do("POST", "/workflows/deploy", once=True, body=body)
        return answer

    def get_workflow(self, id: str) -> "Workflow":
        """One workflow."""
        answer: "Workflow" = self._do("GET", f"/workflows/{_part(id)}")
        return answer

    def cancel_workflow(self, id: str) -> "Workflow":
        """Cancel a workflow: it fails with this reason. What waits is not begun, and an installation that goes on is ended; what was done until then stays."""
        answer: "Workflow" = self._do("DELETE", f"/workflows/{_part(id)}")
        return answer

    def resume_workflow(self, id: str) -> "Workflow":
        """Go on with a workflow of a server alone that has failed, at the step that failed."""
        answer: "Workflow" = self._do("POST", f"/workflows/{_part(id)}/resume", once=True)
        return answer
