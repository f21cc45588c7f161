// Code generated from schemas/openapi/openapi.yaml by go generate ./internal/docs; DO NOT EDIT.

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"auspex/schemas"
)

// ListActionsParams are the parameters of [Client.ListActions]; what is zero is not sent.
type ListActionsParams struct {
	State    string // one of proposed, waiting, approved, running, verifying, done, failed, unknown, cancelled, refused
	Server   string // A server or switch, by any of its names
	Incident string
	Sort     string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by id; one of time, -time
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListActionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "server", p.Server)
	ask(q, "incident", p.Incident)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListActions: List actions: proposed, running and past.
func (c *Client) ListActions(ctx context.Context, params ListActionsParams, opts ...Option) iter.Seq2[schemas.Action, error] {
	return all[schemas.Action](ctx, c, Request{Method: http.MethodGet, Path: "actions", Query: params.query()}, opts)
}

// GetBudgets: Budgets of control and the storm breaker.
func (c *Client) GetBudgets(ctx context.Context, opts ...Option) (Budgets, error) {
	return one[Budgets](ctx, c, Request{Method: http.MethodGet, Path: "actions/budgets"}, opts)
}

// GetAction: One action.
func (c *Client) GetAction(ctx context.Context, id string, opts ...Option) (schemas.Action, error) {
	return one[schemas.Action](ctx, c, Request{Method: http.MethodGet, Path: "actions/" + url.PathEscape(id)}, opts)
}

// DecideAction: Approve, cancel, dry-run or resolve an action, or override a freeze for it. Puts an intent on the bus
// and answers 202; the action changes once control has taken the intent. The same Idempotency-Key gives the same
// intent, which control takes once. Where two persons must approve, the answer says who is still needed; whoever
// approved it already, or asked for it, is answered 409. `override` lets an action through a change freeze; admins
// may, with a reason. `cancel` of an installation that goes on ends it: its workflow is taken away, the server may not
// start from the network any more, and what was done until then stays. `resolve` says that a person has done what only
// a person can (`person`), and closes the ticket; what the body says of it is kept with the action.
func (c *Client) DecideAction(ctx context.Context, id string, verb string, body *Decision, opts ...Option) (Accepted, error) {
	return one[Accepted](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "actions/" + url.PathEscape(id) + "/" + url.PathEscape(verb), Body: given(body)}, opts)
}

// ListAgentsParams are the parameters of [Client.ListAgents]; what is zero is not sent.
type ListAgentsParams struct {
	State  string // Only servers whose agent is in this state; away is lost or refusing; one of answers, unheard, lost, refuses, none, away
	Sort   string // By which field, with a minus from the last; server where it is left out. Equals are sorted by server; one of server, -server, rack, -rack, state, -state
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListAgentsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAgents: List the servers of the inventory by name, with the state of their node agents.
func (c *Client) ListAgents(ctx context.Context, params ListAgentsParams, opts ...Option) iter.Seq2[Agent, error] {
	return all[Agent](ctx, c, Request{Method: http.MethodGet, Path: "agents", Query: params.query()}, opts)
}

// ListAgentsPage: List the servers of the inventory by name, with the state of their node agents.
func (c *Client) ListAgentsPage(ctx context.Context, params ListAgentsParams, opts ...Option) (AgentList, error) {
	return one[AgentList](ctx, c, Request{Method: http.MethodGet, Path: "agents", Query: params.query()}, opts)
}

// ListAlertsParams are the parameters of [Client.ListAlerts]; what is zero is not sent.
type ListAlertsParams struct {
	Status   string // active, acknowledged and resolved as people see it; firing: all that detection has not ended; one of active, acknowledged, firing, resolved
	Server   string // A server or switch, by any of its names
	Type     string // Only of this type, such as gpu.xid
	Severity string // one of info, warning, error, critical
	Source   string // Only of this source, such as kmsg
	Since    time.Time
	Sort     string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by id; one of time, -time
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListAlertsParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "server", p.Server)
	ask(q, "type", p.Type)
	ask(q, "severity", p.Severity)
	ask(q, "source", p.Source)
	ask(q, "since", p.Since)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAlerts: List alerts: events that detection admitted.
func (c *Client) ListAlerts(ctx context.Context, params ListAlertsParams, opts ...Option) iter.Seq2[Alert, error] {
	return all[Alert](ctx, c, Request{Method: http.MethodGet, Path: "alerts", Query: params.query()}, opts)
}

// PostAlert: Report an alert that Auspex does not raise itself. As POST /events, and becomes an alert whatever its
// severity. With `status` active it lasts until the same alert is posted with `status` resolved; without a status it
// is a moment, which ends after an hour (`detect.moment_ttl`). The same alert is that of the same source, type and
// resource. Needs the permission `post`.
func (c *Client) PostAlert(ctx context.Context, body NewAlert, opts ...Option) (Event, error) {
	return one[Event](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "alerts", Body: body}, opts)
}

// GetAlert: One alert, and how people handled it.
func (c *Client) GetAlert(ctx context.Context, id string, opts ...Option) (Alert, error) {
	return one[Alert](ctx, c, Request{Method: http.MethodGet, Path: "alerts/" + url.PathEscape(id)}, opts)
}

// HandleAlert: Acknowledge or resolve an alert, or comment on it. `status` moves from active to acknowledged to
// resolved, or from active to resolved; another move is 409 and names those that there are. It is what people see:
// `state` remains what detection says, and neither correlation nor control counts an alert otherwise that a person
// resolved. A condition that is reported anew is a new alert, and active. Needs the permission `acknowledge`, which
// operators, engineers and admins have.
func (c *Client) HandleAlert(ctx context.Context, id string, body AlertChange, opts ...Option) (Alert, error) {
	return one[Alert](ctx, c, Request{Method: http.MethodPut, Path: "alerts/" + url.PathEscape(id), Body: body}, opts)
}

// GetAlertCorrelation: Which incident an alert belongs to, and what caused it.
func (c *Client) GetAlertCorrelation(ctx context.Context, id string, opts ...Option) (AlertCorrelation, error) {
	return one[AlertCorrelation](ctx, c, Request{Method: http.MethodGet, Path: "alerts/" + url.PathEscape(id) + "/correlation"}, opts)
}

// ListAllocationsParams are the parameters of [Client.ListAllocations]; what is zero is not sent.
type ListAllocationsParams struct {
	Status  string // one of pending, active, completed, failed
	User    string // A user, by id or username
	Team    string // A team, by id or name
	GroupID string // Only those that were asked for together
	Server  string // A server or switch, by any of its names
	Live    *bool  // Only pending and active ones
	Ended   *bool  // Only completed and failed ones
	Sort    string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, start_time, -start_time, end_time, -end_time
	After   string // `next` of the previous page, of the same list in the same order
	Limit   int
	Fields  string // Only these fields of each item, separated by commas
}

func (p *ListAllocationsParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "user", p.User)
	ask(q, "team", p.Team)
	ask(q, "group_id", p.GroupID)
	ask(q, "server", p.Server)
	ask(q, "live", p.Live)
	ask(q, "ended", p.Ended)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAllocations: List allocations, the last made first; a member of a team sees those of their own and of their
// teams.
func (c *Client) ListAllocations(ctx context.Context, params ListAllocationsParams, opts ...Option) iter.Seq2[schemas.Allocation, error] {
	return all[schemas.Allocation](ctx, c, Request{Method: http.MethodGet, Path: "allocations", Query: params.query()}, opts)
}

// CreateAllocationParams are the parameters of [Client.CreateAllocation]; what is zero is not sent.
type CreateAllocationParams struct {
	DryRun *bool // Only choose and check: nothing is given, and the answer is 200
}

func (p *CreateAllocationParams) query() url.Values {
	q := url.Values{}
	ask(q, "dry_run", p.DryRun)
	return q
}

// CreateAllocation: Allocate servers or GPUs: those that are named, or what fits a wish. All of it is given, or
// nothing. What was given is pending until workflows have made it ready, and then active. Nothing is given that is
// under repair, held back, in error, or given to somebody else for a part of that time; quotas and reservations are
// checked in the same transaction. The answer tells why these were chosen, and why others were not. Needs the
// permission `allocate`, which engineers and admins have; for another user, `users`.
func (c *Client) CreateAllocation(ctx context.Context, body NewAllocation, params CreateAllocationParams, opts ...Option) (*schemas.Choice, *CreatedAllocation, error) {
	return either[schemas.Choice, CreatedAllocation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "allocations", Body: body, Query: params.query()}, opts, 200)
}

// GetAllocation: One allocation.
func (c *Client) GetAllocation(ctx context.Context, id string, opts ...Option) (schemas.Allocation, error) {
	return one[schemas.Allocation](ctx, c, Request{Method: http.MethodGet, Path: "allocations/" + url.PathEscape(id)}, opts)
}

// UpdateAllocation: Change the purpose or the end of a live allocation; what is left out stays as it is. A later end
// is held against quotas, reservations and what is booked for others after it.
func (c *Client) UpdateAllocation(ctx context.Context, id string, body ChangedAllocation, opts ...Option) (schemas.Allocation, error) {
	return one[schemas.Allocation](ctx, c, Request{Method: http.MethodPut, Path: "allocations/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteAllocation: End an allocation: an active one is completed, a pending one fails as cancelled. What it held is
// given to nobody until it has been cleaned and looked at.
func (c *Client) DeleteAllocation(ctx context.Context, id string, opts ...Option) (schemas.Allocation, error) {
	return one[schemas.Allocation](ctx, c, Request{Method: http.MethodDelete, Path: "allocations/" + url.PathEscape(id)}, opts)
}

// StartAllocation: Try a failed allocation again, with what fits its wish now or what it named.
func (c *Client) StartAllocation(ctx context.Context, id string, opts ...Option) (schemas.Allocation, error) {
	return one[schemas.Allocation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "allocations/" + url.PathEscape(id) + "/start"}, opts)
}

// GetAllocationStatus: How an allocation is: its workflows step by step, and the state of each of its GPUs.
func (c *Client) GetAllocationStatus(ctx context.Context, id string, opts ...Option) (AllocationStatus, error) {
	return one[AllocationStatus](ctx, c, Request{Method: http.MethodGet, Path: "allocations/" + url.PathEscape(id) + "/status"}, opts)
}

// StopAllocation: End an allocation, as DELETE does, with a report of what was wrong with the hardware. The report is
// kept, and posted as an event of each of its servers. With `force`, which needs the permission `users`, what it held
// is given back without being cleaned, and its servers are held back until somebody lifts that.
func (c *Client) StopAllocation(ctx context.Context, id string, body *StoppedAllocation, opts ...Option) (schemas.Allocation, error) {
	return one[schemas.Allocation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "allocations/" + url.PathEscape(id) + "/stop", Body: given(body)}, opts)
}

// ListAssetsParams are the parameters of [Client.ListAssets]; what is zero is not sent.
type ListAssetsParams struct {
	Kind   string // Only this kind, such as disk
	Q      string // Only what is called by this text, or a part of it: name, serial number, UUID, MAC or PCI address
	Within string // Only parts of this resource, at any depth
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, kind, -kind
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListAssetsParams) query() url.Values {
	q := url.Values{}
	ask(q, "kind", p.Kind)
	ask(q, "q", p.Q)
	ask(q, "within", p.Within)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAssets: List the resources of the inventory by name, with who changed them last.
func (c *Client) ListAssets(ctx context.Context, params ListAssetsParams, opts ...Option) iter.Seq2[Asset, error] {
	return all[Asset](ctx, c, Request{Method: http.MethodGet, Path: "assets", Query: params.query()}, opts)
}

// GetAsset: One resource, there or not any more, with who changed it last.
func (c *Client) GetAsset(ctx context.Context, id string, opts ...Option) (Asset, error) {
	return one[Asset](ctx, c, Request{Method: http.MethodGet, Path: "assets/" + url.PathEscape(id)}, opts)
}

// ListAssetVersionsParams are the parameters of [Client.ListAssetVersions]; what is zero is not sent.
type ListAssetVersionsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListAssetVersionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAssetVersions: What a resource was: who changed what, when, and from which source, the latest first; the last 50
// are kept.
func (c *Client) ListAssetVersions(ctx context.Context, id string, params ListAssetVersionsParams, opts ...Option) iter.Seq2[AssetVersion, error] {
	return all[AssetVersion](ctx, c, Request{Method: http.MethodGet, Path: "assets/" + url.PathEscape(id) + "/versions", Query: params.query()}, opts)
}

// ListAuditParams are the parameters of [Client.ListAudit]; what is zero is not sent.
type ListAuditParams struct {
	Subject string // Only what was done to this, as the rows call it: a server by its name, an allocation by its id
	Actor   string // Only what this user, token or part of Auspex did
	Verb    string // Only this, such as create
	Sort    string // By which field, with a minus from the last; -seq where it is left out; one of seq, -seq
	After   string // `next` of the previous page, of the same list in the same order
	Limit   int
	Fields  string // Only these fields of each item, separated by commas
}

func (p *ListAuditParams) query() url.Values {
	q := url.Values{}
	ask(q, "subject", p.Subject)
	ask(q, "actor", p.Actor)
	ask(q, "verb", p.Verb)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListAudit: List the audit: who did what to which machine, and whether the record is intact. Each row has a hash over
// itself and the row before; `chain` tells whether all of them hold. Needs the permission `audit`, which operators,
// engineers and admins have.
func (c *Client) ListAudit(ctx context.Context, params ListAuditParams, opts ...Option) iter.Seq2[AuditRow, error] {
	return all[AuditRow](ctx, c, Request{Method: http.MethodGet, Path: "audit", Query: params.query()}, opts)
}

// ListAuditPage: List the audit: who did what to which machine, and whether the record is intact. Each row has a hash
// over itself and the row before; `chain` tells whether all of them hold. Needs the permission `audit`, which
// operators, engineers and admins have.
func (c *Client) ListAuditPage(ctx context.Context, params ListAuditParams, opts ...Option) (AuditList, error) {
	return one[AuditList](ctx, c, Request{Method: http.MethodGet, Path: "audit", Query: params.query()}, opts)
}

// GetCapacity: How much there is of each pool, who has it, and what is stranded and why, as of at most half a second
// ago.
func (c *Client) GetCapacity(ctx context.Context, opts ...Option) (Capacity, error) {
	return one[Capacity](ctx, c, Request{Method: http.MethodGet, Path: "capacity"}, opts)
}

// ListConflictsParams are the parameters of [Client.ListConflicts]; what is zero is not sent.
type ListConflictsParams struct {
	Status   string // one of open, decided, settled
	Kind     string // one of two_sources, cable, serial_twice
	Resource string // Only of this resource or its parts, by name
	Sort     string // By which field, with a minus from the last; -first_seen where it is left out. Equals are sorted by id; one of first_seen, -first_seen, last_seen, -last_seen, resource, -resource
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListConflictsParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "kind", p.Kind)
	ask(q, "resource", p.Resource)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListConflicts: List what is said of resources in two ways, the newest first.
func (c *Client) ListConflicts(ctx context.Context, params ListConflictsParams, opts ...Option) iter.Seq2[schemas.Conflict, error] {
	return all[schemas.Conflict](ctx, c, Request{Method: http.MethodGet, Path: "conflicts", Query: params.query()}, opts)
}

// GetConflict: One conflict with both its sides.
func (c *Client) GetConflict(ctx context.Context, id string, opts ...Option) (schemas.Conflict, error) {
	return one[schemas.Conflict](ctx, c, Request{Method: http.MethodGet, Path: "conflicts/" + url.PathEscape(id)}, opts)
}

// DecideConflict: Say which side of a conflict is right. The decision is kept: the same conflict seen again stays
// decided, another value opens a new one. It changes no source and no device: correct the one that is wrong. One that
// was decided may be decided otherwise. Needs the permission `inventory`, which engineers and admins have.
func (c *Client) DecideConflict(ctx context.Context, id string, body NewConflictDecision, opts ...Option) (schemas.Conflict, error) {
	return one[schemas.Conflict](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "conflicts/" + url.PathEscape(id), Body: body}, opts)
}

// ListCorrectionsParams are the parameters of [Client.ListCorrections]; what is zero is not sent.
type ListCorrectionsParams struct {
	Since  time.Time
	Sort   string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by incident; one of time, -time, incident, -incident
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListCorrectionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "since", p.Since)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListCorrections: What people said about the causes of incidents: the verdict that stands of each, newest first.
func (c *Client) ListCorrections(ctx context.Context, params ListCorrectionsParams, opts ...Option) iter.Seq2[schemas.Correction, error] {
	return all[schemas.Correction](ctx, c, Request{Method: http.MethodGet, Path: "corrections", Query: params.query()}, opts)
}

// ListDiscoveriesParams are the parameters of [Client.ListDiscoveries]; what is zero is not sent.
type ListDiscoveriesParams struct {
	Status string // one of waiting, running, completed, failed, cancelled
	Sort   string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, addresses, -addresses
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListDiscoveriesParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListDiscoveries: List sweeps for board controllers, the newest first.
func (c *Client) ListDiscoveries(ctx context.Context, params ListDiscoveriesParams, opts ...Option) iter.Seq2[schemas.Discovery, error] {
	return all[schemas.Discovery](ctx, c, Request{Method: http.MethodGet, Path: "discoveries", Query: params.query()}, opts)
}

// StartDiscovery: Sweep ranges of addresses for board controllers. Each address is asked once, over Redfish with TLS
// and, where nothing speaks Redfish, over IPMI; a credential that is refused is not tried again there. Only addresses
// and ports that `discovery` in the configuration allows are asked; without it every sweep is 409 `not_allowed`. A
// process with the role `collect` does it. Needs the permission `inventory`, which engineers and admins have.
func (c *Client) StartDiscovery(ctx context.Context, body NewDiscovery, opts ...Option) (schemas.Discovery, error) {
	return one[schemas.Discovery](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "discoveries", Body: body}, opts)
}

// GetDiscoveryParams are the parameters of [Client.GetDiscovery]; what is zero is not sent.
type GetDiscoveryParams struct {
	Result string // one of found, refused, unreadable
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *GetDiscoveryParams) query() url.Values {
	q := url.Values{}
	ask(q, "result", p.Result)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// GetDiscovery: A sweep with what it has found, in the order of addresses.
func (c *Client) GetDiscovery(ctx context.Context, id string, params GetDiscoveryParams, opts ...Option) iter.Seq2[schemas.Find, error] {
	return all[schemas.Find](ctx, c, Request{Method: http.MethodGet, Path: "discoveries/" + url.PathEscape(id), Query: params.query()}, opts)
}

// GetDiscoveryPage: A sweep with what it has found, in the order of addresses.
func (c *Client) GetDiscoveryPage(ctx context.Context, id string, params GetDiscoveryParams, opts ...Option) (DiscoveryPage, error) {
	return one[DiscoveryPage](ctx, c, Request{Method: http.MethodGet, Path: "discoveries/" + url.PathEscape(id), Query: params.query()}, opts)
}

// CancelDiscovery: Cancel a sweep; what it has found stays.
func (c *Client) CancelDiscovery(ctx context.Context, id string, opts ...Option) (schemas.Discovery, error) {
	return one[schemas.Discovery](ctx, c, Request{Method: http.MethodDelete, Path: "discoveries/" + url.PathEscape(id)}, opts)
}

// ListEventsParams are the parameters of [Client.ListEvents]; what is zero is not sent.
type ListEventsParams struct {
	Server   string // A server or switch, by any of its names
	Type     string // Only of this type, such as gpu.xid
	Severity string // one of info, warning, error, critical
	Source   string // Only of this source, such as kmsg
	Since    time.Time
	Until    time.Time
	Sort     string // By which field, with a minus from the last; -observed where it is left out. Equals are sorted by id; one of observed, -observed
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListEventsParams) query() url.Values {
	q := url.Values{}
	ask(q, "server", p.Server)
	ask(q, "type", p.Type)
	ask(q, "severity", p.Severity)
	ask(q, "source", p.Source)
	ask(q, "since", p.Since)
	ask(q, "until", p.Until)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListEvents: List events. Events of the history. Without a history, events that detection admitted (`history` is
// false).
func (c *Client) ListEvents(ctx context.Context, params ListEventsParams, opts ...Option) iter.Seq2[Event, error] {
	return all[Event](ctx, c, Request{Method: http.MethodGet, Path: "events", Query: params.query()}, opts)
}

// ListEventsPage: List events. Events of the history. Without a history, events that detection admitted (`history` is
// false).
func (c *Client) ListEventsPage(ctx context.Context, params ListEventsParams, opts ...Option) (EventList, error) {
	return one[EventList](ctx, c, Request{Method: http.MethodGet, Path: "events", Query: params.query()}, opts)
}

// PostEvent: Report an event that Auspex does not see itself. It goes the way of all events: enrichment, detection,
// correlation. Its `source` is `api` and `attrs.external` is `true`; on what callers post alone, control does nothing
// destructive. The answer comes when the event is durable on the bus. The same Idempotency-Key, or the same content
// with the same `occurred_at`, is the same event and is counted once. Needs the permission `post`, which operators,
// engineers and admins have.
func (c *Client) PostEvent(ctx context.Context, body NewEvent, opts ...Option) (Event, error) {
	return one[Event](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "events", Body: body}, opts)
}

// GetEvent: One event, of the alerts or of the history. Without a history, only events that detection admitted are
// known.
func (c *Client) GetEvent(ctx context.Context, id string, opts ...Option) (Event, error) {
	return one[Event](ctx, c, Request{Method: http.MethodGet, Path: "events/" + url.PathEscape(id)}, opts)
}

// ListFaultsParams are the parameters of [Client.ListFaults]; what is zero is not sent.
type ListFaultsParams struct {
	Sort   string // By which field, with a minus from the last; as in the records of faults where it is left out; one of fault, -fault
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int    // How many; all where it is left out
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListFaultsParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListFaults: The faults that can be blamed, each with the kinds of resources that may have it.
func (c *Client) ListFaults(ctx context.Context, params ListFaultsParams, opts ...Option) iter.Seq2[schemas.FaultKinds, error] {
	return all[schemas.FaultKinds](ctx, c, Request{Method: http.MethodGet, Path: "faults", Query: params.query()}, opts)
}

// GetFleetParams are the parameters of [Client.GetFleet]; what is zero is not sent.
type GetFleetParams struct {
	IDs *bool // Include the ids of racks and servers, which are most of the bytes of a large fleet
}

func (p *GetFleetParams) query() url.Values {
	q := url.Values{}
	ask(q, "ids", p.IDs)
	return q
}

// GetFleet: The whole fleet as columns, one entry per server.
func (c *Client) GetFleet(ctx context.Context, params GetFleetParams, opts ...Option) (Fleet, error) {
	return one[Fleet](ctx, c, Request{Method: http.MethodGet, Path: "fleet", Query: params.query()}, opts)
}

// ListGPUsParams are the parameters of [Client.ListGPUs]; what is zero is not sent.
type ListGPUsParams struct {
	Server string // Only of this server, by any of its names
	Status string // one of available, allocated, in_use, error
	Model  string
	Pool   string // Only of servers of this pool, by name
	Gone   *bool  // Also those that have left the inventory, or of servers that are retired
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, model, -model, status, -status, updated_at, -updated_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListGPUsParams) query() url.Values {
	q := url.Values{}
	ask(q, "server", p.Server)
	ask(q, "status", p.Status)
	ask(q, "model", p.Model)
	ask(q, "pool", p.Pool)
	ask(q, "gone", p.Gone)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListGPUs: List the GPUs of the inventory by name.
func (c *Client) ListGPUs(ctx context.Context, params ListGPUsParams, opts ...Option) iter.Seq2[schemas.GPU, error] {
	return all[schemas.GPU](ctx, c, Request{Method: http.MethodGet, Path: "gpus", Query: params.query()}, opts)
}

// GetGPU: One GPU.
func (c *Client) GetGPU(ctx context.Context, id string, opts ...Option) (schemas.GPU, error) {
	return one[schemas.GPU](ctx, c, Request{Method: http.MethodGet, Path: "gpus/" + url.PathEscape(id)}, opts)
}

// UpdateGPU: Change a GPU; what is left out stays as it is. What it is is changed in the inventory, as source `api`.
// An available GPU may be moved into `error`, with a reason, and back; all other moves are those of allocations, and
// 409 `illegal_move`. Needs the permission `inventory`.
func (c *Client) UpdateGPU(ctx context.Context, id string, body ChangedGPU, opts ...Option) (schemas.GPU, error) {
	return one[schemas.GPU](ctx, c, Request{Method: http.MethodPut, Path: "gpus/" + url.PathEscape(id), Body: body}, opts)
}

// GetGPUConfig: What a GPU is to be configured as.
func (c *Client) GetGPUConfig(ctx context.Context, id string, opts ...Option) (GPUConfig, error) {
	return one[GPUConfig](ctx, c, Request{Method: http.MethodGet, Path: "gpus/" + url.PathEscape(id) + "/config"}, opts)
}

// CreateGPUConfig: Say anew what a GPU is to be configured as; what is left out is left as it is on the GPU. Makes the
// next version. `apply` has it set; control does so by itself where `control.configuration.enforce` has it keep
// configurations, and then also after a drift. `keeping` tells how it fares. Needs the permission `inventory`.
func (c *Client) CreateGPUConfig(ctx context.Context, id string, body NewGPUConfig, opts ...Option) (GPUConfig, error) {
	return one[GPUConfig](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "gpus/" + url.PathEscape(id) + "/config", Body: body}, opts)
}

// UpdateGPUConfig: Change what a GPU is to be configured as; what is left out stays as it was. Makes the next version.
// `apply` has it set; control does so by itself where `control.configuration.enforce` has it keep configurations, and
// then also after a drift. `keeping` tells how it fares. Needs the permission `inventory`.
func (c *Client) UpdateGPUConfig(ctx context.Context, id string, body NewGPUConfig, opts ...Option) (GPUConfig, error) {
	return one[GPUConfig](ctx, c, Request{Method: http.MethodPut, Once: true, Path: "gpus/" + url.PathEscape(id) + "/config", Body: body}, opts)
}

// ApplyGPUConfig: Have control set a GPU as its latest configuration says. As of `power`. A power limit is set as it
// is; `memory_clock` together with `sm_clock` of `driver_config`, beside which that may have `persistence`, `ecc` and
// `mig`. What control cannot set is refused and named. What is in force shows in the configuration.
func (c *Client) ApplyGPUConfig(ctx context.Context, id string, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "gpus/" + url.PathEscape(id) + "/config/apply"}, opts)
}

// ListGPUConfigsParams are the parameters of [Client.ListGPUConfigs]; what is zero is not sent.
type ListGPUConfigsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListGPUConfigsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListGPUConfigs: List the versions of the configuration of a GPU, the latest first.
func (c *Client) ListGPUConfigs(ctx context.Context, id string, params ListGPUConfigsParams, opts ...Option) iter.Seq2[GPUConfig, error] {
	return all[GPUConfig](ctx, c, Request{Method: http.MethodGet, Path: "gpus/" + url.PathEscape(id) + "/config/versions", Query: params.query()}, opts)
}

// GetGPUMetricsParams are the parameters of [Client.GetGPUMetrics]; what is zero is not sent.
type GetGPUMetricsParams struct {
	From    time.Time // An hour before `to` if absent
	To      time.Time // Now if absent
	Step    int       // Seconds; a 240th of the range if absent, and at least 30
	Metrics string    // Names of metrics, separated by commas, at most 32
}

func (p *GetGPUMetricsParams) query() url.Values {
	q := url.Values{}
	ask(q, "from", p.From)
	ask(q, "to", p.To)
	ask(q, "step", p.Step)
	ask(q, "metrics", p.Metrics)
	return q
}

// GetGPUMetrics: Readings of a GPU over a range, as columns. A point at a time says what was measured in the step that
// ends then: gauges their mean, counters their last value; null is nothing. The hot window and the history are asked
// for one grid of times; each point is of one of them, so that there is no double and no gap where one ends. A metric
// is of one collector: the first of dcgm-exporter, node agent, Redfish and IPMI that the hot window knows, and in the
// history of the same, or of another one where that had not read it then. Where the step that was asked for would give
// too many points, a longer one is taken, and `thinned` says so. Without metrics: temperature, power, utilization,
// memory used and SM clock.
func (c *Client) GetGPUMetrics(ctx context.Context, id string, params GetGPUMetricsParams, opts ...Option) (GPUMetricColumns, error) {
	return one[GPUMetricColumns](ctx, c, Request{Method: http.MethodGet, Path: "gpus/" + url.PathEscape(id) + "/metrics", Query: params.query()}, opts)
}

// GetGPUStatus: What a GPU does now; null where nobody reads it. Readings are those of the hot window. All of them are
// of one collector where one reads them: of those that answer, the first of dcgm-exporter, node agent, Redfish, IPMI
// that reads the GPU; another one's fill what it does not read. A reading counts while it is at most five minutes old
// and its collector answers (`up`); otherwise the field is null. `utilization.gpu` is `DCGM_FI_DEV_GPU_UTIL`,
// `utilization.memory` `DCGM_FI_DEV_MEM_COPY_UTIL` (the share of time in which memory was read or written),
// `utilization.compute` `DCGM_FI_PROF_SM_ACTIVE` or else `DCGM_FI_PROF_GR_ENGINE_ACTIVE`,
// `utilization.memory_bandwidth` `DCGM_FI_PROF_DRAM_ACTIVE`, all in percent. `temperature` is `DCGM_FI_DEV_GPU_TEMP`
// or else `auspex_gpu_temperature_celsius`, `memory_temperature` `DCGM_FI_DEV_MEMORY_TEMP` or else
// `auspex_gpu_memory_temperature_celsius`, `power` `DCGM_FI_DEV_POWER_USAGE`, `memory` `DCGM_FI_DEV_FB_USED`, `_FREE`
// and `_RESERVED` in bytes, with `total` their sum, `processes` `auspex_gpu_processes`, `driver` `driver_version` of
// the inventory. `state` is that of the screens.
func (c *Client) GetGPUStatus(ctx context.Context, id string, opts ...Option) (GPUStatus, error) {
	return one[GPUStatus](ctx, c, Request{Method: http.MethodGet, Path: "gpus/" + url.PathEscape(id) + "/status"}, opts)
}

// ListGrantsParams are the parameters of [Client.ListGrants]; what is zero is not sent.
type ListGrantsParams struct {
	Pool   string // Only of a pool, by id or name
	Sort   string // By which field, with a minus from the last; created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, pool, -pool
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListGrantsParams) query() url.Values {
	q := url.Values{}
	ask(q, "pool", p.Pool)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListGrants: List what is granted in pools, the oldest first; needs the permission `users`, which admins have.
func (c *Client) ListGrants(ctx context.Context, params ListGrantsParams, opts ...Option) iter.Seq2[schemas.Grant, error] {
	return all[schemas.Grant](ctx, c, Request{Method: http.MethodGet, Path: "grants", Query: params.query()}, opts)
}

// CreateGrant: Let a user, the members of a team, or a token that is nobody's do in one pool what a role may do to
// servers.
func (c *Client) CreateGrant(ctx context.Context, body NewGrant, opts ...Option) (schemas.Grant, error) {
	return one[schemas.Grant](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "grants", Body: body}, opts)
}

// GetGrant: One grant.
func (c *Client) GetGrant(ctx context.Context, id string, opts ...Option) (schemas.Grant, error) {
	return one[schemas.Grant](ctx, c, Request{Method: http.MethodGet, Path: "grants/" + url.PathEscape(id)}, opts)
}

// DeleteGrant: Take a grant back, which counts at the next request.
func (c *Client) DeleteGrant(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "grants/" + url.PathEscape(id)}.with(opts), nil)
}

// ListHardwareParams are the parameters of [Client.ListHardware]; what is zero is not sent.
type ListHardwareParams struct {
	Server      string // Only this server, by any of its names
	Lacks       string // Only those that lack this fact; one of architecture, boot_mode, boot_mac, boot_disk, bmc_address, bmc_kind, bmc_credential
	Installable *bool  // Only those that lack nothing, or something
	Sort        string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, model, -model
	After       string // `next` of the previous page, of the same list in the same order
	Limit       int
	Fields      string // Only these fields of each item, separated by commas
}

func (p *ListHardwareParams) query() url.Values {
	q := url.Values{}
	ask(q, "server", p.Server)
	ask(q, "lacks", p.Lacks)
	ask(q, "installable", p.Installable)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListHardware: List servers as an installer sees them, by name.
func (c *Client) ListHardware(ctx context.Context, params ListHardwareParams, opts ...Option) iter.Seq2[schemas.HardwareRecord, error] {
	return all[schemas.HardwareRecord](ctx, c, Request{Method: http.MethodGet, Path: "hardware", Query: params.query()}, opts)
}

// GetHardware: A server as an installer sees it: what the inventory knows, what people say otherwise, and what lacks.
func (c *Client) GetHardware(ctx context.Context, server string, opts ...Option) (schemas.HardwareRecord, error) {
	return one[schemas.HardwareRecord](ctx, c, Request{Method: http.MethodGet, Path: "hardware/" + url.PathEscape(server)}, opts)
}

// PutHardware: Say of a server what the inventory does not, or says wrongly; what is left out is left to the
// inventory. All of what people say is replaced. An override wins over the inventory; where that says otherwise the
// record has a conflict. User data is shown to whoever may read the record: put no secrets in it. Needs the permission
// `inventory`.
func (c *Client) PutHardware(ctx context.Context, server string, body schemas.HardwareOverrides, opts ...Option) (schemas.HardwareRecord, error) {
	return one[schemas.HardwareRecord](ctx, c, Request{Method: http.MethodPut, Path: "hardware/" + url.PathEscape(server), Body: body}, opts)
}

// ListIncidentsParams are the parameters of [Client.ListIncidents]; what is zero is not sent.
type ListIncidentsParams struct {
	Status string // one of open, closed, merged
	Since  time.Time
	Sort   string // By which field, with a minus from the last; -opened where it is left out. Equals are sorted by id; one of opened, -opened
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListIncidentsParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "since", p.Since)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListIncidents: List incidents: causes with everything they explain.
func (c *Client) ListIncidents(ctx context.Context, params ListIncidentsParams, opts ...Option) iter.Seq2[Incident, error] {
	return all[Incident](ctx, c, Request{Method: http.MethodGet, Path: "incidents", Query: params.query()}, opts)
}

// GetIncidentRecord: How right the causes were, by what people said about them. Counts of the incidents that a person
// has judged, among those of the last year: how often the root cause was the right one, at which confidence, and how
// soon. What nobody has judged is counted and says nothing.
func (c *Client) GetIncidentRecord(ctx context.Context, opts ...Option) (IncidentRecord, error) {
	return one[IncidentRecord](ctx, c, Request{Method: http.MethodGet, Path: "incidents/record"}, opts)
}

// GetIncident: One incident with its evidence.
func (c *Client) GetIncident(ctx context.Context, id string, opts ...Option) (Incident, error) {
	return one[Incident](ctx, c, Request{Method: http.MethodGet, Path: "incidents/" + url.PathEscape(id)}, opts)
}

// ListIncidentCorrectionsParams are the parameters of [Client.ListIncidentCorrections]; what is zero is not sent.
type ListIncidentCorrectionsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int    // How many; all where it is left out
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListIncidentCorrectionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListIncidentCorrections: What people said about the cause of an incident, newest first.
func (c *Client) ListIncidentCorrections(ctx context.Context, id string, params ListIncidentCorrectionsParams, opts ...Option) iter.Seq2[schemas.Correction, error] {
	return all[schemas.Correction](ctx, c, Request{Method: http.MethodGet, Path: "incidents/" + url.PathEscape(id) + "/corrections", Query: params.query()}, opts)
}

// CorrectIncident: Say what the cause of an incident was. Says that the root cause is right, that the cause was
// another, that this was no incident, or withdraws what was said. It may be changed again; each verdict is kept and is
// in the audit. Needs the right `correct`, which operators and admins have.
func (c *Client) CorrectIncident(ctx context.Context, id string, body NewCorrection, opts ...Option) (schemas.Correction, error) {
	return one[schemas.Correction](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "incidents/" + url.PathEscape(id) + "/corrections", Body: body}, opts)
}

// ListJoinTokensParams are the parameters of [Client.ListJoinTokens]; what is zero is not sent.
type ListJoinTokensParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by name; one of name, -name, created, -created, expires, -expires
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListJoinTokensParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListJoinTokens: List the tokens with which node agents join, by name, without their secrets.
func (c *Client) ListJoinTokens(ctx context.Context, params ListJoinTokensParams, opts ...Option) iter.Seq2[JoinToken, error] {
	return all[JoinToken](ctx, c, Request{Method: http.MethodGet, Path: "join-tokens", Query: params.query()}, opts)
}

// ListJoinTokensPage: List the tokens with which node agents join, by name, without their secrets.
func (c *Client) ListJoinTokensPage(ctx context.Context, params ListJoinTokensParams, opts ...Option) (JoinTokenList, error) {
	return one[JoinTokenList](ctx, c, Request{Method: http.MethodGet, Path: "join-tokens", Query: params.query()}, opts)
}

// CreateJoinToken: Create a join token; its secret is shown once and stored as a hash. Each use is bound to the key of
// the machine that shows the token first; that machine comes back with its key as often as it likes, until it or its
// token is revoked. Needs the permission `enrol`, which engineers and admins have. Where the answer was lost and there
// was no Idempotency-Key, revoke the token and create one of another name.
func (c *Client) CreateJoinToken(ctx context.Context, body NewJoinToken, opts ...Option) (JoinToken, error) {
	return one[JoinToken](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "join-tokens", Body: body}, opts)
}

// RevokeJoinToken: Revoke a join token, and cut off the machines that joined with it.
func (c *Client) RevokeJoinToken(ctx context.Context, name string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "join-tokens/" + url.PathEscape(name)}.with(opts), nil)
}

// ListEdgeProposalsParams are the parameters of [Client.ListEdgeProposals]; what is zero is not sent.
type ListEdgeProposalsParams struct {
	State  string // one of open, accepted, declined, withdrawn
	Sort   string // By which field, with a minus from the last; open ones first where it is left out, of these the surest. Equals are sorted by id; one of gain, -gain, found, -found
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int    // How many; all where it is left out
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListEdgeProposalsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListEdgeProposals: Proposals of which kinds of events bring about which others, as counted from lags: open ones
// first, the surest first.
func (c *Client) ListEdgeProposals(ctx context.Context, params ListEdgeProposalsParams, opts ...Option) iter.Seq2[schemas.EdgeProposal, error] {
	return all[schemas.EdgeProposal](ctx, c, Request{Method: http.MethodGet, Path: "learning/edges", Query: params.query()}, opts)
}

// ListEdgeProposalsPage: Proposals of which kinds of events bring about which others, as counted from lags: open ones
// first, the surest first.
func (c *Client) ListEdgeProposalsPage(ctx context.Context, params ListEdgeProposalsParams, opts ...Option) (EdgeProposalList, error) {
	return one[EdgeProposalList](ctx, c, Request{Method: http.MethodGet, Path: "learning/edges", Query: params.query()}, opts)
}

// DecideEdgeProposal: Accept a proposal, decline it, or take an acceptance back. Needs a reason. What is accepted, and
// what is taken back, makes a new version of the learned parameters, which is in force at once: a correlator that runs
// counts the effect as a sign of the fault from then on, or no longer. Needs the right `correct`, which operators,
// engineers and admins have. It is in the audit.
func (c *Client) DecideEdgeProposal(ctx context.Context, id string, body NewEdgeDecision, opts ...Option) (schemas.EdgeProposal, error) {
	return one[schemas.EdgeProposal](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "learning/edges/" + url.PathEscape(id) + "/decisions", Body: body}, opts)
}

// Login: Exchange a one-time code or a token for a session cookie.
func (c *Client) Login(ctx context.Context, body Credential, opts ...Option) (Me, error) {
	return one[Me](ctx, c, Request{Method: http.MethodPost, Path: "login", Body: body}, opts)
}

// CreateLoginCode: Create a one-time login code for a browser; it is valid for 15 minutes.
func (c *Client) CreateLoginCode(ctx context.Context, opts ...Option) (LoginCode, error) {
	return one[LoginCode](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "login-codes"}, opts)
}

// GetLoginMethods: How a browser may log in, beside a code or a token.
func (c *Client) GetLoginMethods(ctx context.Context, opts ...Option) (LoginMethods, error) {
	return one[LoginMethods](ctx, c, Request{Method: http.MethodGet, Path: "login-methods"}, opts)
}

// Logout: End the session of this cookie.
func (c *Client) Logout(ctx context.Context, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodPost, Path: "logout"}.with(opts), nil)
}

// ListMachinesParams are the parameters of [Client.ListMachines]; what is zero is not sent.
type ListMachinesParams struct {
	Sort   string // By which field, with a minus from the last; key where it is left out. Equals are sorted by key; one of key, -key, joined, -joined, seen, -seen
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListMachinesParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListMachines: List the machines that have joined, by key, and where they stand in the inventory.
func (c *Client) ListMachines(ctx context.Context, params ListMachinesParams, opts ...Option) iter.Seq2[Machine, error] {
	return all[Machine](ctx, c, Request{Method: http.MethodGet, Path: "machines", Query: params.query()}, opts)
}

// RevokeMachine: Revoke one machine and cut it off; its use of its token stays used.
func (c *Client) RevokeMachine(ctx context.Context, key string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "machines/" + url.PathEscape(key)}.with(opts), nil)
}

// ListMaintenanceParams are the parameters of [Client.ListMaintenance]; what is zero is not sent.
type ListMaintenanceParams struct {
	Open     *bool  // Only windows that are open or to come, the first to begin first; they come in one page
	Resource string // Only windows that concern this resource: it, what it is part of, or what powers it
	Sort     string // By which field, with a minus from the last; -declared where it is left out, and from for what is open or to come. Equals are sorted by id; one of declared, -declared, from, -from
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListMaintenanceParams) query() url.Values {
	q := url.Values{}
	ask(q, "open", p.Open)
	ask(q, "resource", p.Resource)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListMaintenance: List maintenance windows, the last declared first.
func (c *Client) ListMaintenance(ctx context.Context, params ListMaintenanceParams, opts ...Option) iter.Seq2[schemas.Maintenance, error] {
	return all[schemas.Maintenance](ctx, c, Request{Method: http.MethodGet, Path: "maintenance", Query: params.query()}, opts)
}

// ListMaintenancePage: List maintenance windows, the last declared first.
func (c *Client) ListMaintenancePage(ctx context.Context, params ListMaintenanceParams, opts ...Option) (MaintenanceList, error) {
	return one[MaintenanceList](ctx, c, Request{Method: http.MethodGet, Path: "maintenance", Query: params.query()}, opts)
}

// DeclareMaintenance: Declare maintenance of some resources and all that is below them. What such work makes them do
// (lost contact, restarts, links down, power lost) is then no incident while the window is open, and control repairs
// nothing there. Everything else stays what it is, and what is still out some time after the end is told. Windows may
// overlap. The same Idempotency-Key of the same caller gives the same window. Needs the right `declare`, which
// operators, engineers and admins have, or the grant of it in the pools of all that is named: to whoever is in a team
// nothing else is there, and nothing else matches.
func (c *Client) DeclareMaintenance(ctx context.Context, body NewMaintenance, opts ...Option) (schemas.Maintenance, error) {
	return one[schemas.Maintenance](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "maintenance", Body: body}, opts)
}

// GetMaintenance: One maintenance window.
func (c *Client) GetMaintenance(ctx context.Context, id string, opts ...Option) (schemas.Maintenance, error) {
	return one[schemas.Maintenance](ctx, c, Request{Method: http.MethodGet, Path: "maintenance/" + url.PathEscape(id)}, opts)
}

// UpdateMaintenance: Change the end, the reason or the grace of a maintenance window that is not over; what is left
// out stays as it is. What it is declared for stays: declare another window for more. A window of the scheduler is
// changed there. Needs the right `declare`.
func (c *Client) UpdateMaintenance(ctx context.Context, id string, body ChangedMaintenance, opts ...Option) (schemas.Maintenance, error) {
	return one[schemas.Maintenance](ctx, c, Request{Method: http.MethodPut, Path: "maintenance/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteMaintenance: Withdraw a maintenance window: it ends now, or never begins. It stays in the list, as over.
func (c *Client) DeleteMaintenance(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "maintenance/" + url.PathEscape(id)}.with(opts), nil)
}

// EndMaintenance: End a maintenance window now; one that is over stays as it is.
func (c *Client) EndMaintenance(ctx context.Context, id string, opts ...Option) (schemas.Maintenance, error) {
	return one[schemas.Maintenance](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "maintenance/" + url.PathEscape(id) + "/end"}, opts)
}

// GetMe: The caller, their permissions, and the mode of control.
func (c *Client) GetMe(ctx context.Context, opts ...Option) (Me, error) {
	return one[Me](ctx, c, Request{Method: http.MethodGet, Path: "me"}, opts)
}

// ListNoticesParams are the parameters of [Client.ListNotices]; what is zero is not sent.
type ListNoticesParams struct {
	Type    string // Only of this type, such as allocation.ending
	Subject string // Only of this allocation, by id
	Since   time.Time
	Sort    string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by id; one of time, -time, type, -type
	After   string // `next` of the previous page, of the same list in the same order
	Limit   int
	Fields  string // Only these fields of each item, separated by commas
}

func (p *ListNoticesParams) query() url.Values {
	q := url.Values{}
	ask(q, "type", p.Type)
	ask(q, "subject", p.Subject)
	ask(q, "since", p.Since)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListNotices: List what people were told of what they have in the last 30 days: an allocation is ready, has failed or
// ended, ends soon, or hardware of it degrades or is repaired. The newest first. Whoever is in a team reads what is
// for them or a team of theirs. The stream tells each as it is written (`notice`), and webhooks send them.
func (c *Client) ListNotices(ctx context.Context, params ListNoticesParams, opts ...Option) iter.Seq2[schemas.Notice, error] {
	return all[schemas.Notice](ctx, c, Request{Method: http.MethodGet, Path: "notices", Query: params.query()}, opts)
}

// ListOperationsParams are the parameters of [Client.ListOperations]; what is zero is not sent.
type ListOperationsParams struct {
	State  string // one of pending, proposed, waiting, approved, running, verifying, done, failed, unknown, cancelled, refused
	Server string // A server or switch, by any of its names
	Sort   string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListOperationsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "server", p.Server)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListOperations: List what people, allocations and workflows asked for, newest first.
func (c *Client) ListOperations(ctx context.Context, params ListOperationsParams, opts ...Option) iter.Seq2[Operation, error] {
	return all[Operation](ctx, c, Request{Method: http.MethodGet, Path: "operations", Query: params.query()}, opts)
}

// GetOperation: How far an operation is.
func (c *Client) GetOperation(ctx context.Context, id string, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodGet, Path: "operations/" + url.PathEscape(id)}, opts)
}

// PowerServerOperation: The same as `/servers/{id}/power`; the id is that of a server.
func (c *Client) PowerServerOperation(ctx context.Context, id string, body PowerRequest, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "operations/" + url.PathEscape(id) + "/power", Body: body}, opts)
}

// ListPoolsParams are the parameters of [Client.ListPools]; what is zero is not sent.
type ListPoolsParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, created_at, -created_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListPoolsParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListPools: List pools by name.
func (c *Client) ListPools(ctx context.Context, params ListPoolsParams, opts ...Option) iter.Seq2[schemas.Pool, error] {
	return all[schemas.Pool](ctx, c, Request{Method: http.MethodGet, Path: "pools", Query: params.query()}, opts)
}

// CreatePool: Create a pool; needs the permission `quotas`, which admins have.
func (c *Client) CreatePool(ctx context.Context, body NewPool, opts ...Option) (schemas.Pool, error) {
	return one[schemas.Pool](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "pools", Body: body}, opts)
}

// GetPool: One pool.
func (c *Client) GetPool(ctx context.Context, id string, opts ...Option) (schemas.Pool, error) {
	return one[schemas.Pool](ctx, c, Request{Method: http.MethodGet, Path: "pools/" + url.PathEscape(id)}, opts)
}

// UpdatePool: Change a pool; what is left out stays as it is. Needs the permission `quotas`.
func (c *Client) UpdatePool(ctx context.Context, id string, body ChangedPool, opts ...Option) (schemas.Pool, error) {
	return one[schemas.Pool](ctx, c, Request{Method: http.MethodPut, Path: "pools/" + url.PathEscape(id), Body: body}, opts)
}

// DeletePool: Remove a pool. Needs the permission `quotas`.
func (c *Client) DeletePool(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "pools/" + url.PathEscape(id)}.with(opts), nil)
}

// ListPredictionsParams are the parameters of [Client.ListPredictions]; what is zero is not sent.
type ListPredictionsParams struct {
	State  string // one of open, came_true, averted, expired
	Server string // A server or switch, by any of its names
	Sort   string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by id; one of time, -time
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListPredictionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "server", p.Server)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListPredictions: List predictions: what fails next, and when.
func (c *Client) ListPredictions(ctx context.Context, params ListPredictionsParams, opts ...Option) iter.Seq2[Prediction, error] {
	return all[Prediction](ctx, c, Request{Method: http.MethodGet, Path: "predictions", Query: params.query()}, opts)
}

// ListPredictionsPage: List predictions: what fails next, and when.
func (c *Client) ListPredictionsPage(ctx context.Context, params ListPredictionsParams, opts ...Option) (PredictionList, error) {
	return one[PredictionList](ctx, c, Request{Method: http.MethodGet, Path: "predictions", Query: params.query()}, opts)
}

// GetPredictionRecord: How past predictions ended. Counts of the predictions of the last 90 days by outcome, and of
// the incidents that should have been predicted and were not.
func (c *Client) GetPredictionRecord(ctx context.Context, opts ...Option) (PredictionRecord, error) {
	return one[PredictionRecord](ctx, c, Request{Method: http.MethodGet, Path: "predictions/record"}, opts)
}

// ListProposalsParams are the parameters of [Client.ListProposals]; what is zero is not sent.
type ListProposalsParams struct {
	State  string // one of open, accepted, declined
	Sort   string // By which field, with a minus from the last; -time where it is left out. Equals are sorted by id; one of time, -time
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListProposalsParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListProposals: List what node agents propose for the inventory, the newest first.
func (c *Client) ListProposals(ctx context.Context, params ListProposalsParams, opts ...Option) iter.Seq2[Proposal, error] {
	return all[Proposal](ctx, c, Request{Method: http.MethodGet, Path: "proposals", Query: params.query()}, opts)
}

// GetProposal: One proposal with its differences.
func (c *Client) GetProposal(ctx context.Context, id string, opts ...Option) (Proposal, error) {
	return one[Proposal](ctx, c, Request{Method: http.MethodGet, Path: "proposals/" + url.PathEscape(id)}, opts)
}

// DecideProposal: Accept a proposal, or decline it. What is accepted is imported as source `agent` in the same
// transaction, and a machine that dials in stands at the server from then on. What is declined does not come back
// until it says something else. Needs the permission `enrol`, which engineers and admins have.
func (c *Client) DecideProposal(ctx context.Context, id string, body NewProposalDecision, opts ...Option) (Proposal, error) {
	return one[Proposal](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "proposals/" + url.PathEscape(id) + "/decisions", Body: body}, opts)
}

// ListQuotasParams are the parameters of [Client.ListQuotas]; what is zero is not sent.
type ListQuotasParams struct {
	Sort   string // By which field, with a minus from the last; created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, updated_at, -updated_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListQuotasParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListQuotas: List quotas, the first made first, those of other teams left out unless you may change the inventory,
// and what is used of them.
func (c *Client) ListQuotas(ctx context.Context, params ListQuotasParams, opts ...Option) iter.Seq2[Quota, error] {
	return all[Quota](ctx, c, Request{Method: http.MethodGet, Path: "quotas", Query: params.query()}, opts)
}

// CreateQuota: Create a quota; needs the permission `quotas`, which admins have.
func (c *Client) CreateQuota(ctx context.Context, body NewQuota, opts ...Option) (Quota, error) {
	return one[Quota](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "quotas", Body: body}, opts)
}

// GetQuota: One quota.
func (c *Client) GetQuota(ctx context.Context, id string, opts ...Option) (Quota, error) {
	return one[Quota](ctx, c, Request{Method: http.MethodGet, Path: "quotas/" + url.PathEscape(id)}, opts)
}

// UpdateQuota: Change a quota; a limit that is left out is none. Needs the permission `quotas`.
func (c *Client) UpdateQuota(ctx context.Context, id string, body ChangedQuota, opts ...Option) (Quota, error) {
	return one[Quota](ctx, c, Request{Method: http.MethodPut, Path: "quotas/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteQuota: Remove a quota. Needs the permission `quotas`.
func (c *Client) DeleteQuota(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "quotas/" + url.PathEscape(id)}.with(opts), nil)
}

// ListRefusedDescriptionsParams are the parameters of [Client.ListRefusedDescriptions]; what is zero is not sent.
type ListRefusedDescriptionsParams struct {
	Sort   string // By which field, with a minus from the last; -since where it is left out. Equals are sorted by machine or server; one of since, -since, read, -read
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListRefusedDescriptionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListRefusedDescriptions: List the node agents whose description of their machine is not taken, and why.
func (c *Client) ListRefusedDescriptions(ctx context.Context, params ListRefusedDescriptionsParams, opts ...Option) iter.Seq2[RefusedDescription, error] {
	return all[RefusedDescription](ctx, c, Request{Method: http.MethodGet, Path: "refused-descriptions", Query: params.query()}, opts)
}

// ListReservationsParams are the parameters of [Client.ListReservations]; what is zero is not sent.
type ListReservationsParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, start_time, -start_time, end_time, -end_time
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListReservationsParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListReservations: List reservations by name, those of other teams left out unless you may change the inventory.
func (c *Client) ListReservations(ctx context.Context, params ListReservationsParams, opts ...Option) iter.Seq2[schemas.Reservation, error] {
	return all[schemas.Reservation](ctx, c, Request{Method: http.MethodGet, Path: "reservations", Query: params.query()}, opts)
}

// CreateReservation: Create a reservation; needs the permission `quotas`, which admins have.
func (c *Client) CreateReservation(ctx context.Context, body NewReservation, opts ...Option) (schemas.Reservation, error) {
	return one[schemas.Reservation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "reservations", Body: body}, opts)
}

// GetReservation: One reservation.
func (c *Client) GetReservation(ctx context.Context, id string, opts ...Option) (schemas.Reservation, error) {
	return one[schemas.Reservation](ctx, c, Request{Method: http.MethodGet, Path: "reservations/" + url.PathEscape(id)}, opts)
}

// UpdateReservation: Change a reservation; what is left out stays as it is. Needs the permission `quotas`.
func (c *Client) UpdateReservation(ctx context.Context, id string, body ChangedReservation, opts ...Option) (schemas.Reservation, error) {
	return one[schemas.Reservation](ctx, c, Request{Method: http.MethodPut, Path: "reservations/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteReservation: Remove a reservation. Needs the permission `quotas`.
func (c *Client) DeleteReservation(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "reservations/" + url.PathEscape(id)}.with(opts), nil)
}

// ListResourcesParams are the parameters of [Client.ListResources]; what is zero is not sent.
type ListResourcesParams struct {
	Kind   string // Only this kind, such as gpu
	Find   string // Only what this text matches, as in a route
	Within string // Only parts of this resource, at any depth
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, kind, -kind
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListResourcesParams) query() url.Values {
	q := url.Values{}
	ask(q, "kind", p.Kind)
	ask(q, "find", p.Find)
	ask(q, "within", p.Within)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListResources: List the resources of the inventory by name.
func (c *Client) ListResources(ctx context.Context, params ListResourcesParams, opts ...Option) iter.Seq2[ResourceRef, error] {
	return all[ResourceRef](ctx, c, Request{Method: http.MethodGet, Path: "resources", Query: params.query()}, opts)
}

// GetResource: One resource, its parents and its direct parts.
func (c *Client) GetResource(ctx context.Context, id string, opts ...Option) (Resource, error) {
	return one[Resource](ctx, c, Request{Method: http.MethodGet, Path: "resources/" + url.PathEscape(id)}, opts)
}

// SearchParams are the parameters of [Client.Search]; what is zero is not sent.
type SearchParams struct {
	Q     string // What to look for, in either case
	Kind  string // Only this kind: of a resource, such as gpu, or incident or user
	Limit int
}

func (p *SearchParams) query() url.Values {
	q := url.Values{}
	ask(q, "q", p.Q)
	ask(q, "kind", p.Kind)
	ask(q, "limit", p.Limit)
	return q
}

// Search: Find resources, incidents and people by a part of what they are called. Resources by id, name, serial
// number, UUID, MAC or PCI address; incidents by id, and open ones by what they blame; users by name or address, of
// those that the caller may see. What matches exactly comes first, then what begins so, then what contains it; `more`
// says that there are others.
func (c *Client) Search(ctx context.Context, params SearchParams, opts ...Option) (SearchResults, error) {
	return one[SearchResults](ctx, c, Request{Method: http.MethodGet, Path: "search", Query: params.query()}, opts)
}

// ListServersParams are the parameters of [Client.ListServers]; what is zero is not sent.
type ListServersParams struct {
	Status string // one of discovered, provisioning, ready, error, retired
	Pool   string // Only of this pool, by name
	Model  string
	Label  string // Only with this label: `name`, or `name=value`
	Gone   *bool  // Also those that have left the inventory or are retired
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, model, -model, status, -status, status_since, -status_since, updated_at, -updated_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListServersParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "pool", p.Pool)
	ask(q, "model", p.Model)
	ask(q, "label", p.Label)
	ask(q, "gone", p.Gone)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListServers: List the servers of the inventory by name, with what they are given to people by. Readings are not
// here: `/fleet` and `/servers/{id}/status` have them.
func (c *Client) ListServers(ctx context.Context, params ListServersParams, opts ...Option) iter.Seq2[ServerRecord, error] {
	return all[ServerRecord](ctx, c, Request{Method: http.MethodGet, Path: "servers", Query: params.query()}, opts)
}

// RegisterServer: Register a server. Brings the server and its GPUs into the inventory as source `api`, in state
// `discovered`: it goes through `provisioning` before it can be `ready`. A name, serial number or UUID that the
// inventory has is 409 and names the field. Needs the permission `inventory`, which engineers and admins have.
func (c *Client) RegisterServer(ctx context.Context, body NewServer, opts ...Option) (ServerRecord, error) {
	return one[ServerRecord](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers", Body: body}, opts)
}

// GetServer: A server or switch with its parts, alerts, predictions and actions.
func (c *Client) GetServer(ctx context.Context, id string, opts ...Option) (Server, error) {
	return one[Server](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id)}, opts)
}

// UpdateServer: Change a server; what is left out stays as it is. What it is (model, addresses, serial number, parent,
// credential) is changed in the inventory, as source `api`; its name is fixed. Its status moves along its life: a move
// that there is not is 409 `illegal_move` and lists the legal ones. A server that somebody has stays ready, and one
// that a workflow works on where it is. Needs the permission `inventory`.
func (c *Client) UpdateServer(ctx context.Context, id string, body ChangedServer, opts ...Option) (ServerRecord, error) {
	return one[ServerRecord](ctx, c, Request{Method: http.MethodPut, Path: "servers/" + url.PathEscape(id), Body: body}, opts)
}

// RetireServer: Retire a server. A server that is ready or in error becomes `retired`, and what callers registered of
// it leaves the inventory; what another source brings of it stays there. It is 409 while the server is allocated,
// worked on or under repair. Needs the permission `inventory`.
func (c *Client) RetireServer(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "servers/" + url.PathEscape(id)}.with(opts), nil)
}

// SetServerBIOS: Set BIOS attributes of a server. As of `power`. They are checked against the registry of the BMC
// before anything is sent. Without `reset` the operation ends once the BMC shows them as pending until its next reset;
// with it the server is restarted, and the operation is done when the BIOS reads as asked.
func (c *Client) SetServerBIOS(ctx context.Context, id string, body BiosRequest, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/bios", Body: body}, opts)
}

// GetServerConfig: What a server is to be configured as.
func (c *Client) GetServerConfig(ctx context.Context, id string, opts ...Option) (ServerConfig, error) {
	return one[ServerConfig](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/config"}, opts)
}

// PutServerConfig: Say what a server is to be configured as; what is left out stays as it was. Makes the next version.
// `apply` has it set; control does so by itself where `control.configuration.enforce` has it keep configurations, and
// then also after a drift. `keeping` tells how it fares. Needs the permission `inventory`.
func (c *Client) PutServerConfig(ctx context.Context, id string, body NewServerConfig, opts ...Option) (ServerConfig, error) {
	return one[ServerConfig](ctx, c, Request{Method: http.MethodPut, Once: true, Path: "servers/" + url.PathEscape(id) + "/config", Body: body}, opts)
}

// ApplyServerConfig: Have control set a server as its latest configuration says. As of `bios`, with the attributes of
// `bios_config`. A configuration is not set in part: where it has settings of RAID or network, which no driver of
// control sets, the operation is that of these, `set_raid` or `set_network`, and ends in `cannot`.
func (c *Client) ApplyServerConfig(ctx context.Context, id string, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/config/apply"}, opts)
}

// ListServerConfigsParams are the parameters of [Client.ListServerConfigs]; what is zero is not sent.
type ListServerConfigsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListServerConfigsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListServerConfigs: List the versions of the configuration of a server, the latest first.
func (c *Client) ListServerConfigs(ctx context.Context, id string, params ListServerConfigsParams, opts ...Option) iter.Seq2[ServerConfig, error] {
	return all[ServerConfig](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/config/versions", Query: params.query()}, opts)
}

// UpdateServerFirmware: Update firmware of a server. As of `power`. The image must be at a place that
// `control.bmc.images` names, and its digest is checked before it is sent. The operation is done when the component
// has the version. Until then no operation turns the power of the server.
func (c *Client) UpdateServerFirmware(ctx context.Context, id string, body FirmwareRequest, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/firmware", Body: body}, opts)
}

// ListServerGPUsParams are the parameters of [Client.ListServerGPUs]; what is zero is not sent.
type ListServerGPUsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListServerGPUsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListServerGPUs: List the GPUs of a server by name.
func (c *Client) ListServerGPUs(ctx context.Context, id string, params ListServerGPUsParams, opts ...Option) iter.Seq2[schemas.GPU, error] {
	return all[schemas.GPU](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/gpus", Query: params.query()}, opts)
}

// RegisterGPU: Register a GPU of a server. Brings the GPU into the inventory as source `api`. Needs the permission
// `inventory`.
func (c *Client) RegisterGPU(ctx context.Context, id string, body NewGPU, opts ...Option) (schemas.GPU, error) {
	return one[schemas.GPU](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/gpus", Body: body}, opts)
}

// GetServerPlotsParams are the parameters of [Client.GetServerPlots]; what is zero is not sent.
type GetServerPlotsParams struct {
	Range string // How far back; one of 15m, 1h, 6h, 24h
	Part  string // Only this part, such as gpu4
}

func (p *GetServerPlotsParams) query() url.Values {
	q := url.Values{}
	ask(q, "range", p.Range)
	ask(q, "part", p.Part)
	return q
}

// GetServerPlots: Plots of a device over a range that ends now.
func (c *Client) GetServerPlots(ctx context.Context, id string, params GetServerPlotsParams, opts ...Option) (PlotList, error) {
	return one[PlotList](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/plots", Query: params.query()}, opts)
}

// PoolServer: Take a server out of its scheduler, keep it out, or give it back. As of `power`. A server in quarantine
// is given to nobody and gets no work, whatever repairs it, until somebody asks for `uncordon`. Only what Auspex has
// taken out is given back to the scheduler.
func (c *Client) PoolServer(ctx context.Context, id string, body PoolRequest, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/pool", Body: body}, opts)
}

// PowerServer: Turn a server on or off, restart it, or send it a diagnostic interrupt. Asks control for it and answers
// 202 with the operation, which is `pending` until control has taken it. What comes of it is at the address in
// `Location`; the live stream tells of changes as `operations`. Control refuses what it may not or cannot do, and says
// why in the operation. Needs the right `operate`, which engineers and admins have.
func (c *Client) PowerServer(ctx context.Context, id string, body PowerRequest, opts ...Option) (Operation, error) {
	return one[Operation](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "servers/" + url.PathEscape(id) + "/power", Body: body}, opts)
}

// GetServerStatus: What a server does now; null where nobody reads it. Readings are those of the hot window (metrics
// `auspex_server_*`, `auspex_fan_*`, `auspex_psu_*`, of Redfish, IPMI or the node agent, in this order where several
// read the same). One counts while it is at most five minutes old and its collector answers (`up`); otherwise the
// field is null. `power` is `auspex_server_power_on`, `inlet_temperature` `auspex_server_inlet_temperature_celsius`,
// `power_draw` `auspex_server_power_watts` or else the sum of `auspex_psu_input_power_watts`, `fans`
// `auspex_fan_speed_rpm`, `auspex_fan_duty_ratio` and `auspex_fan_healthy`, `psus` `auspex_psu_input_power_watts`,
// `auspex_psu_input_present` and `auspex_psu_healthy`, `last_boot` the time of `auspex_server_uptime_seconds` less its
// value.
func (c *Client) GetServerStatus(ctx context.Context, id string, opts ...Option) (ServerStatus, error) {
	return one[ServerStatus](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/status"}, opts)
}

// ListServerValidationsParams are the parameters of [Client.ListServerValidations]; what is zero is not sent.
type ListServerValidationsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListServerValidationsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListServerValidations: List what was found of a server when it was validated, the latest first. One for each time
// that the step or rung `validate` looked: what its agent tested, whether each part is read and its links are up at
// full speed, and how its GPUs, memory, drivers and ports compare with most others of the same model. What nobody can
// tell is `not_seen`, and never passed. The latest 200 are kept.
func (c *Client) ListServerValidations(ctx context.Context, id string, params ListServerValidationsParams, opts ...Option) iter.Seq2[schemas.Validation, error] {
	return all[schemas.Validation](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/validations", Query: params.query()}, opts)
}

// ListServerWipesParams are the parameters of [Client.ListServerWipes]; what is zero is not sent.
type ListServerWipesParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListServerWipesParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListServerWipes: List what was found of the drives of a server after they were to be wiped, the latest first. One
// for each time that a workflow of the step `wipe` told it: of each drive its own sanitize status, as it is and
// decoded, and the blocks that were read back. A server is wiped when all drives of its hardware record, and all
// others that were seen, are proven to hold nothing; that the workflow succeeded proves nothing. All are kept, and
// none changes.
func (c *Client) ListServerWipes(ctx context.Context, id string, params ListServerWipesParams, opts ...Option) iter.Seq2[schemas.Wipe, error] {
	return all[schemas.Wipe](ctx, c, Request{Method: http.MethodGet, Path: "servers/" + url.PathEscape(id) + "/wipes", Query: params.query()}, opts)
}

// ListTeamsParams are the parameters of [Client.ListTeams]; what is zero is not sent.
type ListTeamsParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, created_at, -created_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListTeamsParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListTeams: List teams by name; without the permission `users`, only your own.
func (c *Client) ListTeams(ctx context.Context, params ListTeamsParams, opts ...Option) iter.Seq2[schemas.Team, error] {
	return all[schemas.Team](ctx, c, Request{Method: http.MethodGet, Path: "teams", Query: params.query()}, opts)
}

// CreateTeam: Create a team; needs the permission `users`.
func (c *Client) CreateTeam(ctx context.Context, body NewTeam, opts ...Option) (schemas.Team, error) {
	return one[schemas.Team](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "teams", Body: body}, opts)
}

// GetTeam: One team; without the permission `users`, one of your own.
func (c *Client) GetTeam(ctx context.Context, id string, opts ...Option) (schemas.Team, error) {
	return one[schemas.Team](ctx, c, Request{Method: http.MethodGet, Path: "teams/" + url.PathEscape(id)}, opts)
}

// UpdateTeam: Change a team; what is left out stays as it is. Needs the permission `users`.
func (c *Client) UpdateTeam(ctx context.Context, id string, body ChangedTeam, opts ...Option) (schemas.Team, error) {
	return one[schemas.Team](ctx, c, Request{Method: http.MethodPut, Path: "teams/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteTeam: Remove a team; its members stay. Needs the permission `users`.
func (c *Client) DeleteTeam(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "teams/" + url.PathEscape(id)}.with(opts), nil)
}

// ListTemplatesParams are the parameters of [Client.ListTemplates]; what is zero is not sent.
type ListTemplatesParams struct {
	Status   string // Only those of this status; one of active, retired
	OsFamily string // Only those of this family; one of talos, flatcar, ubuntu, other
	Sort     string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, created_at, -created_at, updated_at, -updated_at
	After    string // `next` of the previous page, of the same list in the same order
	Limit    int
	Fields   string // Only these fields of each item, separated by commas
}

func (p *ListTemplatesParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "os_family", p.OsFamily)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListTemplates: List the templates of installations by name, without their texts.
func (c *Client) ListTemplates(ctx context.Context, params ListTemplatesParams, opts ...Option) iter.Seq2[schemas.Template, error] {
	return all[schemas.Template](ctx, c, Request{Method: http.MethodGet, Path: "templates", Query: params.query()}, opts)
}

// CreateTemplateParams are the parameters of [Client.CreateTemplate]; what is zero is not sent.
type CreateTemplateParams struct {
	DryRun *bool // Only check: nothing is stored, and the answer is 200
}

func (p *CreateTemplateParams) query() url.Values {
	q := url.Values{}
	ask(q, "dry_run", p.DryRun)
	return q
}

// CreateTemplate: Create a template, with its first version; needs the permission `inventory`, which engineers and
// admins have. The text is a template of a workflow of Tinkerbell. It is rendered with the defaults and examples of
// its parameters, and each fault, with its line, is one of `errors` of a problem `bad_template`.
func (c *Client) CreateTemplate(ctx context.Context, body NewTemplate, params CreateTemplateParams, opts ...Option) (schemas.Template, error) {
	return one[schemas.Template](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "templates", Body: body, Query: params.query()}, opts)
}

// GetTemplateParams are the parameters of [Client.GetTemplate]; what is zero is not sent.
type GetTemplateParams struct {
	Version int64 // Another version than the latest
}

func (p *GetTemplateParams) query() url.Values {
	q := url.Values{}
	ask(q, "version", p.Version)
	return q
}

// GetTemplate: One template, as its latest version has it or as another one has.
func (c *Client) GetTemplate(ctx context.Context, id string, params GetTemplateParams, opts ...Option) (schemas.Template, error) {
	return one[schemas.Template](ctx, c, Request{Method: http.MethodGet, Path: "templates/" + url.PathEscape(id), Query: params.query()}, opts)
}

// UpdateTemplateParams are the parameters of [Client.UpdateTemplate]; what is zero is not sent.
type UpdateTemplateParams struct {
	DryRun *bool // Only check: nothing is stored
}

func (p *UpdateTemplateParams) query() url.Values {
	q := url.Values{}
	ask(q, "dry_run", p.DryRun)
	return q
}

// UpdateTemplate: Make the next version of a template, or retire it; what is left out stays as it is. Needs the
// permission `inventory`. A version never changes once it is made. A retired template takes no further one, and is
// chosen for nothing new.
func (c *Client) UpdateTemplate(ctx context.Context, id string, body ChangedTemplate, params UpdateTemplateParams, opts ...Option) (schemas.Template, error) {
	return one[schemas.Template](ctx, c, Request{Method: http.MethodPut, Path: "templates/" + url.PathEscape(id), Body: body, Query: params.query()}, opts)
}

// DeleteTemplate: Remove a template that nothing refers to, with its versions. Needs the permission `inventory`.
func (c *Client) DeleteTemplate(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "templates/" + url.PathEscape(id)}.with(opts), nil)
}

// RenderTemplate: Fill a template in for a server, and store nothing. What comes of it is checked as Tinkerbell would,
// and each fault is told with its line of the template. Secrets are masked as `(hidden)`.
func (c *Client) RenderTemplate(ctx context.Context, id string, body NewRendering, opts ...Option) (schemas.RenderedTemplate, error) {
	return one[schemas.RenderedTemplate](ctx, c, Request{Method: http.MethodPost, Path: "templates/" + url.PathEscape(id) + "/render", Body: body}, opts)
}

// ListTemplateVersionsParams are the parameters of [Client.ListTemplateVersions]; what is zero is not sent.
type ListTemplateVersionsParams struct {
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListTemplateVersionsParams) query() url.Values {
	q := url.Values{}
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListTemplateVersions: List the versions of a template, the latest first, without their texts.
func (c *Client) ListTemplateVersions(ctx context.Context, id string, params ListTemplateVersionsParams, opts ...Option) iter.Seq2[schemas.TemplateVersion, error] {
	return all[schemas.TemplateVersion](ctx, c, Request{Method: http.MethodGet, Path: "templates/" + url.PathEscape(id) + "/versions", Query: params.query()}, opts)
}

// ListTokensParams are the parameters of [Client.ListTokens]; what is zero is not sent.
type ListTokensParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by name; one of name, -name, created, -created, last_used, -last_used
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListTokensParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListTokens: List tokens, by name where no order is asked for; needs the permission `tokens`, which admins have.
func (c *Client) ListTokens(ctx context.Context, params ListTokensParams, opts ...Option) iter.Seq2[Token, error] {
	return all[Token](ctx, c, Request{Method: http.MethodGet, Path: "tokens", Query: params.query()}, opts)
}

// CreateToken: Create a token; its secret is shown once and stored as a hash. Where the answer was lost and there was
// no Idempotency-Key, the same request is 409: revoke the token by its name and create it anew.
func (c *Client) CreateToken(ctx context.Context, body NewToken, opts ...Option) (CreatedToken, error) {
	return one[CreatedToken](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "tokens", Body: body}, opts)
}

// GetToken: One token, without its secret; needs the permission `tokens`.
func (c *Client) GetToken(ctx context.Context, name string, opts ...Option) (Token, error) {
	return one[Token](ctx, c, Request{Method: http.MethodGet, Path: "tokens/" + url.PathEscape(name)}, opts)
}

// UpdateToken: Change what a token may do or until when it is valid; what is left out stays as it is. Its secret stays
// the same: for another one, revoke it and create a new one. A lesser role and an earlier end count at the next
// request, also of sessions that came from it. Needs the permission `tokens`.
func (c *Client) UpdateToken(ctx context.Context, name string, body ChangedToken, opts ...Option) (Token, error) {
	return one[Token](ctx, c, Request{Method: http.MethodPut, Path: "tokens/" + url.PathEscape(name), Body: body}, opts)
}

// RevokeToken: Revoke a token and end its sessions and their streams at once.
func (c *Client) RevokeToken(ctx context.Context, name string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "tokens/" + url.PathEscape(name)}.with(opts), nil)
}

// ListUsersParams are the parameters of [Client.ListUsers]; what is zero is not sent.
type ListUsersParams struct {
	Role   string // one of viewer, operator, engineer, admin
	Status string // one of active, inactive
	Sort   string // By which field, with a minus from the last; username where it is left out. Equals are sorted by id; one of username, -username, email, -email, created_at, -created_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListUsersParams) query() url.Values {
	q := url.Values{}
	ask(q, "role", p.Role)
	ask(q, "status", p.Status)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListUsers: List users by name; without the permission `users`, only yourself and those of your teams.
func (c *Client) ListUsers(ctx context.Context, params ListUsersParams, opts ...Option) iter.Seq2[schemas.User, error] {
	return all[schemas.User](ctx, c, Request{Method: http.MethodGet, Path: "users", Query: params.query()}, opts)
}

// CreateUser: Create a user; needs the permission `users`, which admins have.
func (c *Client) CreateUser(ctx context.Context, body NewUser, opts ...Option) (schemas.User, error) {
	return one[schemas.User](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "users", Body: body}, opts)
}

// GetUser: One user; without the permission `users`, only yourself and those of your teams.
func (c *Client) GetUser(ctx context.Context, id string, opts ...Option) (schemas.User, error) {
	return one[schemas.User](ctx, c, Request{Method: http.MethodGet, Path: "users/" + url.PathEscape(id)}, opts)
}

// UpdateUser: Change a user; what is left out stays as it is. The tokens and sessions of an inactive user do not work,
// at once and until the user is active again; with a lesser role they may less. Needs the permission `users`.
func (c *Client) UpdateUser(ctx context.Context, id string, body ChangedUser, opts ...Option) (schemas.User, error) {
	return one[schemas.User](ctx, c, Request{Method: http.MethodPut, Path: "users/" + url.PathEscape(id), Body: body}, opts)
}

// ListUserAllocationsParams are the parameters of [Client.ListUserAllocations]; what is zero is not sent.
type ListUserAllocationsParams struct {
	Live   *bool  // Only pending and active ones
	Sort   string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, start_time, -start_time, end_time, -end_time
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListUserAllocationsParams) query() url.Values {
	q := url.Values{}
	ask(q, "live", p.Live)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListUserAllocations: List the allocations of a user, the last made first.
func (c *Client) ListUserAllocations(ctx context.Context, id string, params ListUserAllocationsParams, opts ...Option) iter.Seq2[schemas.Allocation, error] {
	return all[schemas.Allocation](ctx, c, Request{Method: http.MethodGet, Path: "users/" + url.PathEscape(id) + "/allocations", Query: params.query()}, opts)
}

// ListWebhooksParams are the parameters of [Client.ListWebhooks]; what is zero is not sent.
type ListWebhooksParams struct {
	Sort   string // By which field, with a minus from the last; name where it is left out. Equals are sorted by id; one of name, -name, created_at, -created_at
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListWebhooksParams) query() url.Values {
	q := url.Values{}
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListWebhooks: List webhooks by name, without their secrets; needs the permission `webhooks`, which admins have.
func (c *Client) ListWebhooks(ctx context.Context, params ListWebhooksParams, opts ...Option) iter.Seq2[schemas.Webhook, error] {
	return all[schemas.Webhook](ctx, c, Request{Method: http.MethodGet, Path: "webhooks", Query: params.query()}, opts)
}

// CreateWebhook: Create a webhook; needs the permission `webhooks`. Notices are sent to it by POST as CloudEvents 1.0
// (structured JSON), signed by the scheme of Standard Webhooks with its secret, which no answer ever has. Each is sent
// until it is answered with 2xx, for at most a day; it may arrive twice, under the same id.
func (c *Client) CreateWebhook(ctx context.Context, body NewWebhook, opts ...Option) (schemas.Webhook, error) {
	return one[schemas.Webhook](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "webhooks", Body: body}, opts)
}

// GetWebhook: One webhook, without its secret; needs the permission `webhooks`.
func (c *Client) GetWebhook(ctx context.Context, id string, opts ...Option) (schemas.Webhook, error) {
	return one[schemas.Webhook](ctx, c, Request{Method: http.MethodGet, Path: "webhooks/" + url.PathEscape(id)}, opts)
}

// UpdateWebhook: Change a webhook; what is left out stays as it is. Needs the permission `webhooks`.
func (c *Client) UpdateWebhook(ctx context.Context, id string, body ChangedWebhook, opts ...Option) (schemas.Webhook, error) {
	return one[schemas.Webhook](ctx, c, Request{Method: http.MethodPut, Path: "webhooks/" + url.PathEscape(id), Body: body}, opts)
}

// DeleteWebhook: Remove a webhook with its deliveries. Needs the permission `webhooks`.
func (c *Client) DeleteWebhook(ctx context.Context, id string, opts ...Option) error {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: "webhooks/" + url.PathEscape(id)}.with(opts), nil)
}

// ListDeliveriesParams are the parameters of [Client.ListDeliveries]; what is zero is not sent.
type ListDeliveriesParams struct {
	State  string // one of pending, delivered, dead
	Sort   string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, attempts, -attempts
	After  string // `next` of the previous page, of the same list in the same order
	Limit  int
	Fields string // Only these fields of each item, separated by commas
}

func (p *ListDeliveriesParams) query() url.Values {
	q := url.Values{}
	ask(q, "state", p.State)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListDeliveries: List what was sent to a webhook in the last 30 days, or waits, the newest first; needs the
// permission `webhooks`.
func (c *Client) ListDeliveries(ctx context.Context, id string, params ListDeliveriesParams, opts ...Option) iter.Seq2[schemas.Delivery, error] {
	return all[schemas.Delivery](ctx, c, Request{Method: http.MethodGet, Path: "webhooks/" + url.PathEscape(id) + "/deliveries", Query: params.query()}, opts)
}

// TestWebhook: Send a notice of the type `webhook.test` to a webhook, whatever its topics are; needs the permission
// `webhooks`.
func (c *Client) TestWebhook(ctx context.Context, id string, opts ...Option) (schemas.Delivery, error) {
	return one[schemas.Delivery](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "webhooks/" + url.PathEscape(id) + "/test"}, opts)
}

// ListWorkflowsParams are the parameters of [Client.ListWorkflows]; what is zero is not sent.
type ListWorkflowsParams struct {
	Status     string // one of pending, running, completed, failed
	Type       string // one of deploy, cleanup, config, validate, bring_up
	Server     string // A server or switch, by any of its names
	Allocation string
	Sort       string // By which field, with a minus from the last; -created_at where it is left out. Equals are sorted by id; one of created_at, -created_at, updated_at, -updated_at
	After      string // `next` of the previous page, of the same list in the same order
	Limit      int
	Fields     string // Only these fields of each item, separated by commas
}

func (p *ListWorkflowsParams) query() url.Values {
	q := url.Values{}
	ask(q, "status", p.Status)
	ask(q, "type", p.Type)
	ask(q, "server", p.Server)
	ask(q, "allocation", p.Allocation)
	ask(q, "sort", p.Sort)
	ask(q, "after", p.After)
	ask(q, "limit", p.Limit)
	ask(q, "fields", p.Fields)
	return q
}

// ListWorkflows: List workflows, the last made first.
func (c *Client) ListWorkflows(ctx context.Context, params ListWorkflowsParams, opts ...Option) iter.Seq2[schemas.Workflow, error] {
	return all[schemas.Workflow](ctx, c, Request{Method: http.MethodGet, Path: "workflows", Query: params.query()}, opts)
}

// CreateWorkflowParams are the parameters of [Client.CreateWorkflow]; what is zero is not sent.
type CreateWorkflowParams struct {
	DryRun *bool // Of bring_up: only tell what would be done; nothing is, and the answer is 200
}

func (p *CreateWorkflowParams) query() url.Values {
	q := url.Values{}
	ask(q, "dry_run", p.DryRun)
	return q
}

// CreateWorkflow: Run a workflow on a server; one that is discovered is made ready by `bring_up`, or by `validate`
// where nothing is to be done to it. `bring_up` takes a server that nobody has to ready, by the steps of
// `allocator.bring_up`: the inventory is held against what was seen, firmware brought to its baseline, the server
// installed with the template that is named or pinned to it, its drivers read, and validated. Where control does not
// act it waits. `validate` looks at a server that nobody has, and `config` sets it and its GPUs before that as their
// latest configurations say, by control: a step that no driver does fails and says so. `deploy` and `cleanup` are the
// same as below. Needs the permission `allocate`, and `config` and `bring_up` also `operate`, or the grant of it in
// the server's pool, of which whoever is in a team needs some. A server that somebody has, or on which another
// workflow runs, is 409.
func (c *Client) CreateWorkflow(ctx context.Context, body NewWorkflow, params CreateWorkflowParams, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "workflows", Body: body, Query: params.query()}, opts)
}

// CleanupAllocation: Run the cleaning of a server of an allocation that has ended again, where it failed.
func (c *Client) CleanupAllocation(ctx context.Context, body WorkflowOfAllocation, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "workflows/cleanup", Body: body}, opts)
}

// DeployAllocation: Run the deployment of a server of an allocation again, where it failed.
func (c *Client) DeployAllocation(ctx context.Context, body WorkflowOfAllocation, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "workflows/deploy", Body: body}, opts)
}

// GetWorkflow: One workflow.
func (c *Client) GetWorkflow(ctx context.Context, id string, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodGet, Path: "workflows/" + url.PathEscape(id)}, opts)
}

// CancelWorkflow: Cancel a workflow: it fails with this reason. What waits is not begun, and an installation that goes
// on is ended; what was done until then stays.
func (c *Client) CancelWorkflow(ctx context.Context, id string, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodDelete, Path: "workflows/" + url.PathEscape(id)}, opts)
}

// ResumeWorkflow: Go on with a workflow of a server alone that has failed, at the step that failed. What was completed
// stays so. A workflow of an allocation is run again by `deploy` and `cleanup`, and is 409 here, as is one after which
// another was made on the server.
func (c *Client) ResumeWorkflow(ctx context.Context, id string, opts ...Option) (schemas.Workflow, error) {
	return one[schemas.Workflow](ctx, c, Request{Method: http.MethodPost, Once: true, Path: "workflows/" + url.PathEscape(id) + "/resume"}, opts)
}

// Problem: as the document has it.
type Problem struct {
	Candidates []ResourceRef   `json:"candidates,omitzero"` // Resources that the request may have meant
	Choice     *schemas.Choice `json:"choice,omitzero"`
	Code       string          `json:"code"` // Stable, for scripts
	Detail     string          `json:"detail"`
	Errors     []FieldProblem  `json:"errors,omitzero"` // What is wrong with which field, where several are or one is
	Hint       string          `json:"hint,omitzero"`   // What to do next
	Legal      []string        `json:"legal,omitzero"`  // Where a record cannot move to a state: those that it can move to
	Status     int             `json:"status"`
	Title      string          `json:"title"`
	Type       string          `json:"type"`
}

// Budgets: as the document has it.
type Budgets struct {
	Breaker   *schemas.Breaker `json:"breaker,omitzero"`
	Levels    []schemas.Budget `json:"levels"`     // Empty if control has never run
	RackLimit int              `json:"rack_limit"` // Limit of every rack that levels does not name
	Time      time.Time        `json:"time"`       // When control counted them
}

// Accepted: as the document has it.
type Accepted struct {
	Action string `json:"action"`
	Detail string `json:"detail,omitzero"` // Who must approve it besides, in a sentence
	Intent string `json:"intent"`
	Verb   string `json:"verb,omitzero"`
}

// Decision: as the document has it.
type Decision struct {
	Note      string `json:"note,omitzero"`      // What was done; of `resolve` alone
	Reason    string `json:"reason,omitzero"`    // Why; required to override a freeze
	Reference string `json:"reference,omitzero"` // Where that is written, such as the number of a ticket; of `resolve` alone
}

// AgentList: as the document has it.
type AgentList struct {
	Counts struct {
		Answers int `json:"answers"`
		Lost    int `json:"lost"`
		None    int `json:"none"`
		Refuses int `json:"refuses"`
		Unheard int `json:"unheard"`
	} `json:"counts"` // How many servers there are of each state
	Items []Agent `json:"items"`
	Next  string  `json:"next,omitzero"`
}

// Agent: as the document has it.
type Agent struct {
	Address string    `json:"address,omitzero"` // Where it is dialled, or dialled in from last
	DialsIn bool      `json:"dials_in"`         // It dials Auspex; otherwise Auspex dials it
	Machine string    `json:"machine,omitzero"` // The key of the machine that stands there, of those that dial in
	Rack    string    `json:"rack,omitzero"`
	Seen    time.Time `json:"seen,omitzero"` // When that last dialled in
	Server  string    `json:"server"`
	Since   time.Time `json:"since,omitzero"`   // Since when it is lost or refuses
	State   string    `json:"state"`            // none: the inventory names no agent; lost: it does not answer; refuses: it answers, and refuses the collector; unheard: it has told nothing since this process began; answers: otherwise
	Version string    `json:"version,omitzero"` // Of the agent, as it told last
}

// Alert: An event that detection admitted.
type Alert struct {
	AcknowledgedAt time.Time              `json:"acknowledged_at,omitzero"`
	AcknowledgedBy string                 `json:"acknowledged_by,omitzero"`
	AlertType      string                 `json:"alert_type"` // The same as type
	Annotations    map[string]string      `json:"annotations,omitzero"`
	Attrs          map[string]string      `json:"attrs,omitzero"`
	Code           string                 `json:"code,omitzero"`
	Comments       []schemas.AlertComment `json:"comments,omitzero"`  // The oldest first; only of one alert
	Condition      string                 `json:"condition,omitzero"` // raised or cleared, for conditions that end
	Data           map[string]any         `json:"data"`               // What was posted; of all other alerts attrs
	EventType      string                 `json:"event_type"`         // The same as type
	Fingerprint    string                 `json:"fingerprint"`        // Of the condition: a raise and its end have the same
	ID             string                 `json:"id"`
	Labels         map[string]string      `json:"labels,omitzero"`
	Message        string                 `json:"message,omitzero"`
	Observed       time.Time              `json:"observed"`    // By the clock of the collector
	OccurredAt     time.Time              `json:"occurred_at"` // The same as time
	Priority       string                 `json:"priority"`    // low, medium, high or critical, in the order of severity
	Rack           string                 `json:"rack,omitzero"`
	ResolvedAt     time.Time              `json:"resolved_at,omitzero"` // When it ended, or a person resolved it
	ResolvedBy     string                 `json:"resolved_by,omitzero"` // Of a person, where one resolved it
	Resource       string                 `json:"resource"`
	Rule           string                 `json:"rule"`
	Server         string                 `json:"server,omitzero"`
	Severity       schemas.Severity       `json:"severity"` // one of info, warning, error, critical
	Site           string                 `json:"site,omitzero"`
	Source         string                 `json:"source"`
	SourceID       string                 `json:"source_id,omitzero"`   // UUID of the resource
	SourceType     string                 `json:"source_type,omitzero"` // Kind of the resource, such as gpu or server
	State          string                 `json:"state"`                // firing or resolved, as detection has it
	Status         string                 `json:"status"`               // For people: active, acknowledged or resolved. What detection has ended is resolved, and so is what a person resolved
	Time           time.Time              `json:"time"`                 // By the clock of the device
	TriggeredAt    time.Time              `json:"triggered_at"`         // The same as time
	Type           string                 `json:"type"`
}

// Event: as the document has it.
type Event struct {
	Attrs      map[string]string `json:"attrs,omitzero"`
	Code       string            `json:"code,omitzero"`
	Data       map[string]any    `json:"data"`       // What was posted; of all other events attrs
	EventType  string            `json:"event_type"` // The same as type
	ID         string            `json:"id"`
	Message    string            `json:"message,omitzero"`
	Observed   time.Time         `json:"observed"`    // By the clock of the collector
	OccurredAt time.Time         `json:"occurred_at"` // The same as time
	Resource   string            `json:"resource"`
	Severity   schemas.Severity  `json:"severity"` // one of info, warning, error, critical
	Source     string            `json:"source"`
	SourceID   string            `json:"source_id"`      // UUID of the resource; of a job its id, and empty where nobody knows it
	SourceType string            `json:"source_type"`    // Kind of the resource, such as gpu or server; workload: a job
	State      string            `json:"state,omitzero"` // raised or cleared, for conditions that end
	Time       time.Time         `json:"time"`           // By the clock of the device
	Type       string            `json:"type"`
}

// NewAlert: as the document has it.
type NewAlert struct {
	AlertType   string         `json:"alert_type"`
	Code        string         `json:"code,omitzero"`
	Data        map[string]any `json:"data,omitzero"` // As of an event
	Message     string         `json:"message,omitzero"`
	Priority    string         `json:"priority,omitzero"` // info, warning, error and critical in this order; one of low, medium, high, critical
	Severity    string         `json:"severity,omitzero"` // This or priority; one of info, warning, error, critical
	SourceID    string         `json:"source_id"`         // The resource, by any of its names, or the id of a job
	SourceType  string         `json:"source_type,omitzero"`
	Status      string         `json:"status,omitzero"`       // Of a condition that ends; absent: a moment; one of active, resolved
	TriggeredAt time.Time      `json:"triggered_at,omitzero"` // As occurred_at of an event
}

// AlertChange: as the document has it.
type AlertChange struct {
	Comment string `json:"comment,omitzero"`
	Status  string `json:"status,omitzero"` // one of acknowledged, resolved
}

// AlertCorrelation: as the document has it.
type AlertCorrelation struct {
	Alert          string                  `json:"alert"`
	Alternatives   []schemas.Cause         `json:"alternatives"`
	Confidence     *float64                `json:"confidence"` // A probability
	Explanation    *string                 `json:"explanation"`
	External       bool                    `json:"external"` // All that speaks for the incident was posted by callers: nothing destructive is done on it
	Incident       *string                 `json:"incident"` // Id; null: none holds it, and reason says why
	Reason         *string                 `json:"reason"`
	Recommendation *schemas.Recommendation `json:"recommendation"`
	RootCause      *schemas.Cause          `json:"root_cause"`
}

// CreatedAllocation: as the document has it.
type CreatedAllocation struct {
	Allocation schemas.Allocation `json:"allocation"`
	Choice     schemas.Choice     `json:"choice"`
}

// NewAllocation: One of `server_id`, `server_ids`, `gpu_ids` and `wish`.
type NewAllocation struct {
	EndTime         time.Time      `json:"end_time,omitzero"` // Absent is open
	GPUIDs          []string       `json:"gpu_ids,omitzero"`  // Single GPUs
	GroupID         string         `json:"group_id,omitzero"`
	Parameters      map[string]any `json:"parameters,omitzero"` // Of the template, as its schema says. A secret, by its name, is for those who run the place
	Purpose         string         `json:"purpose,omitzero"`
	ServerID        string         `json:"server_id,omitzero"`        // A whole server
	ServerIDs       []string       `json:"server_ids,omitzero"`       // Whole servers
	StartTime       time.Time      `json:"start_time,omitzero"`       // Absent is now
	Team            string         `json:"team,omitzero"`             // By id or name; absent is the only one of the user, or none
	Template        string         `json:"template,omitzero"`         // Install whole servers with this template, by id or name, instead of what is pinned to them
	TemplateVersion int64          `json:"template_version,omitzero"` // Absent is the latest
	UserID          string         `json:"user_id,omitzero"`          // By id or username; absent is who asks
	Wish            *schemas.Wish  `json:"wish,omitzero"`
}

// ChangedAllocation: as the document has it.
type ChangedAllocation struct {
	EndTime time.Time `json:"end_time,omitzero"`
	Purpose *string   `json:"purpose,omitzero"`
}

// AllocationStatus: as the document has it.
type AllocationStatus struct {
	ID             string             `json:"id"`
	Replacement    []schemas.Pick     `json:"replacement,omitzero"`  // What could be had instead of servers that are ill
	SecondsLeft    *int               `json:"seconds_left,omitzero"` // Absent where it has no end
	Servers        []AllocatedServer  `json:"servers"`
	Status         string             `json:"status"`
	StatusReason   string             `json:"status_reason,omitzero"`
	StatusSentence *schemas.Sentence  `json:"status_sentence,omitzero"`
	Workflows      []schemas.Workflow `json:"workflows"`
}

// StoppedAllocation: as the document has it.
type StoppedAllocation struct {
	Force  bool   `json:"force,omitzero"`
	Report string `json:"report,omitzero"` // What was wrong with the hardware
}

// Asset: A resource of the inventory, or one that was.
type Asset struct {
	Attrs       map[string]string `json:"attrs"`
	Change      string            `json:"change"` // added, changed or removed: what was done last
	ChangedAt   time.Time         `json:"changed_at,omitzero"`
	ChangedBy   string            `json:"changed_by,omitzero"`
	ID          string            `json:"id"`
	InInventory bool              `json:"in_inventory"`
	Kind        string            `json:"kind"`
	Name        string            `json:"name"`
	Origin      string            `json:"origin,omitzero"` // The file or request
	Parent      string            `json:"parent,omitzero"`
	Place       *Place            `json:"place,omitzero"`
	Source      string            `json:"source"`  // That changed it last: file, api, agent, discovery, …
	Version     int64             `json:"version"` // From 1, by one with each change; 0 is not known
}

// AssetVersion: as the document has it.
type AssetVersion struct {
	Attrs       map[string]string `json:"attrs"` // After it; of what was removed, as it was
	By          string            `json:"by,omitzero"`
	Change      string            `json:"change"`      // added, changed or removed
	Differences []AssetDifference `json:"differences"` // To the version before
	Kind        string            `json:"kind"`
	Origin      string            `json:"origin,omitzero"`
	Parent      string            `json:"parent,omitzero"`
	Source      string            `json:"source"`
	Time        time.Time         `json:"time,omitzero"`
	Version     int64             `json:"version"`
}

// AuditList: as the document has it.
type AuditList struct {
	Chain AuditChain `json:"chain"`
	Items []AuditRow `json:"items"`
	Next  string     `json:"next,omitzero"`
}

// AuditRow: as the document has it.
type AuditRow struct {
	Action  string    `json:"action"` // Id of the action
	Actor   string    `json:"actor"`  // A person, or auspex
	Detail  string    `json:"detail,omitzero"`
	Hash    string    `json:"hash"` // SHA-256 over the row and the hash before it, hex
	Kind    string    `json:"kind"`
	Seq     int64     `json:"seq"`
	State   string    `json:"state"`   // State of the action after it
	Subject string    `json:"subject"` // The server; empty if there is none
	Time    time.Time `json:"time"`
	Verb    string    `json:"verb"` // propose, wait, intend, sent, done, fail, refuse, cancel, ...
}

// Capacity: as the document has it.
type Capacity struct {
	Pools    []schemas.PoolCapacity `json:"pools"`
	Stranded []schemas.Stranded     `json:"stranded"` // What nobody has and nobody can be given, the longest first
}

// NewConflictDecision: as the document has it.
type NewConflictDecision struct {
	Comment  string `json:"comment,omitzero"`
	Decision string `json:"decision"` // one of left, right, dismissed
}

// NewDiscovery: as the document has it.
type NewDiscovery struct {
	Credential   string   `json:"credential,omitzero"`    // The name of a secret of the controllers, never the secret. Without it only what is told to everybody is read, and no IPMI
	IPMIPorts    []int    `json:"ipmi_ports,omitzero"`    // 623 where it is absent; empty asks for no IPMI
	Ranges       []string `json:"ranges"`                 // Addresses, or prefixes such as 10.0.0.0/28
	RedfishPorts []int    `json:"redfish_ports,omitzero"` // 443 where it is absent; empty asks for no Redfish
}

// DiscoveryPage: as the document has it.
type DiscoveryPage struct {
	Discovery schemas.Discovery `json:"discovery"`
	Items     []schemas.Find    `json:"items"`
	Next      string            `json:"next,omitzero"` // `after` of the next page; absent on the last
}

// EventList: as the document has it.
type EventList struct {
	History bool    `json:"history"`
	Items   []Event `json:"items"`
	Next    string  `json:"next,omitzero"`
}

// NewEvent: as the document has it.
type NewEvent struct {
	Code       string         `json:"code,omitzero"`
	Data       map[string]any `json:"data,omitzero"` // At most 64 fields, 4 deep, and 16 KiB as JSON. Hints at the part, such as gpu, pci, sensor or port, are followed
	EventType  string         `json:"event_type"`    // A dotted name, such as psu.failure; what Auspex alone tells is refused
	Message    string         `json:"message,omitzero"`
	OccurredAt time.Time      `json:"occurred_at,omitzero"` // By your clock; at most 30 seconds ahead of ours, and a day old; now if absent
	Severity   string         `json:"severity"`             // one of info, warning, error, critical
	SourceID   string         `json:"source_id"`            // The resource, by any of its names, or the id of a job
	SourceType string         `json:"source_type,omitzero"` // Kind of the resource; workload: a job
	State      string         `json:"state,omitzero"`       // For conditions that end; absent: a moment; one of raised, cleared
}

// Fleet: as the document has it.
type Fleet struct {
	History FleetHistory `json:"history"`
	Jobs    []FleetJob   `json:"jobs"`
	Racks   []FleetRack  `json:"racks"`
	Servers FleetServers `json:"servers"`
	Summary FleetSummary `json:"summary"`
	Time    time.Time    `json:"time"`
}

// ChangedGPU: as the document has it.
type ChangedGPU struct {
	CUDAVersion   *string  `json:"cuda_version,omitzero"`
	DriverVersion *string  `json:"driver_version,omitzero"`
	MemoryGB      *float64 `json:"memory_gb,omitzero"`
	Model         *string  `json:"model,omitzero"`
	SerialNumber  *string  `json:"serial_number,omitzero"`
	Status        string   `json:"status,omitzero"`        // one of available, allocated, in_use, error
	StatusReason  string   `json:"status_reason,omitzero"` // Why its status changes; needed for error
}

// GPUConfig: as the document has it.
type GPUConfig struct {
	Applied       *GPUReadings       `json:"applied"`
	AppliedReason string             `json:"applied_reason"` // Why not all of it is known
	CreatedAt     time.Time          `json:"created_at"`
	CreatedBy     string             `json:"created_by"`
	Differences   []ConfigDifference `json:"differences"`
	DriverConfig  map[string]any     `json:"driver_config"`
	GPU           string             `json:"gpu"`
	GPUID         string             `json:"gpu_id"`
	ID            string             `json:"id"`
	Keeping       *ConfigKeeping     `json:"keeping"`
	MemoryClock   *int64             `json:"memory_clock"` // MHz; null leaves it as it is
	PowerLimit    *float64           `json:"power_limit"`  // Watts; null leaves it as it is
	State         string             `json:"state"`        // stored: it is kept, and nobody reads what is in force; unknown: not all of it is read now; one of stored, in_force, differs, unknown
	Version       int64              `json:"version"`      // From 1, by one with each change
}

// NewGPUConfig: as the document has it.
type NewGPUConfig struct {
	DriverConfig map[string]any `json:"driver_config,omitzero"` // At most 64 KiB
	MemoryClock  *int64         `json:"memory_clock,omitzero"`  // MHz
	PowerLimit   *float64       `json:"power_limit,omitzero"`   // Watts
}

// Operation: as the document has it.
type Operation struct {
	Actor      string            `json:"actor"` // Who asked for it or decided last
	CreatedAt  time.Time         `json:"created_at"`
	Detail     string            `json:"detail,omitzero"` // What holds it, went wrong, or was seen last
	Done       bool              `json:"done"`            // It changes no more, whether it went well or not
	ID         string            `json:"id"`              // That of the action, too
	Kind       string            `json:"kind"`
	Rails      []schemas.Rail    `json:"rails"`
	Reason     string            `json:"reason"` // request, allocation ID, or workflow ID
	Sentence   *schemas.Sentence `json:"sentence,omitzero"`
	Server     string            `json:"server"`
	ServerID   string            `json:"server_id,omitzero"`
	State      string            `json:"state"`           // one of pending, proposed, waiting, approved, running, verifying, done, failed, unknown, cancelled, refused
	Target     string            `json:"target,omitzero"` // The part of the server that it is about, where it is one
	UpdatedAt  time.Time         `json:"updated_at"`
	VerifiedBy string            `json:"verified_by,omitzero"` // What shows that it was done
	With       map[string]string `json:"with,omitzero"`
}

// GPUMetricColumns: as the document has it.
type GPUMetricColumns struct {
	From        time.Time         `json:"from"`
	History     bool              `json:"history"` // The history answered for what is older than the hot window; false: it was not needed or is not there, and what is older is null
	ID          string            `json:"id"`
	Metrics     []GPUMetricColumn `json:"metrics"`
	Name        string            `json:"name"`
	StepSeconds float64           `json:"step_seconds"`
	Thinned     bool              `json:"thinned"` // The step is longer than what was asked for
	Times       []float64         `json:"times"`   // s since 1970: the ends of the steps
	To          time.Time         `json:"to"`
}

// GPUStatus: as the document has it.
type GPUStatus struct {
	Collector         *string        `json:"collector"` // Whose readings these are, where one reads them
	Driver            *string        `json:"driver"`
	ID                string         `json:"id"`
	Memory            GPUMemory      `json:"memory"`
	MemoryTemperature *float64       `json:"memory_temperature"` // °C
	Name              string         `json:"name"`
	Power             *float64       `json:"power"`     // W
	Processes         *int           `json:"processes"` // That hold the GPU
	Server            string         `json:"server"`
	State             string         `json:"state"`       // ok, warning, critical, affected, predicted, acting, out or unknown
	Temperature       *float64       `json:"temperature"` // °C
	Timestamp         *time.Time     `json:"timestamp"`   // Of the newest reading
	Utilization       GPUUtilization `json:"utilization"`
}

// NewGrant: One of user, team and token. A holder has one grant in a pool: to change it, take it back and make
// another.
type NewGrant struct {
	Pool  string `json:"pool"`           // By id or name
	Role  string `json:"role"`           // one of operator, engineer, admin
	Team  string `json:"team,omitzero"`  // By id or name
	Token string `json:"token,omitzero"` // A token that is nobody's, by name
	User  string `json:"user,omitzero"`  // By id or username
}

// Incident: An incident and what the web UI shows of it.
type Incident struct {
	Affected       []string                `json:"affected"`
	Against        []schemas.Sentence      `json:"against,omitzero"` // What was to be expected of the cause and did not come
	Alerts         int                     `json:"alerts"`           // Number of alerts that it explains
	Alternatives   []schemas.Cause         `json:"alternatives"`
	At             time.Time               `json:"at"` // Event time of this state
	Closed         time.Time               `json:"closed,omitzero"`
	Correction     *schemas.Correction     `json:"correction,omitzero"`
	Events         []string                `json:"events,omitzero"` // Ids of the alerts, at most 1,000; absent in lists
	Explanation    string                  `json:"explanation"`
	Explanations   map[string]string       `json:"explanations,omitzero"` // The explanation by language
	External       bool                    `json:"external,omitzero"`     // All that speaks for it was posted by callers: nothing destructive is done on it. Not in lists
	Graph          *schemas.Graph          `json:"graph,omitzero"`
	Holders        []IncidentHolder        `json:"holders,omitzero"` // Who had servers that it touches while it was open; not in lists
	ID             string                  `json:"id"`
	Jobs           []IncidentJob           `json:"jobs,omitzero"`
	Lanes          []EvidenceLane          `json:"lanes,omitzero"`
	MergedInto     string                  `json:"merged_into,omitzero"`
	NoStep         *schemas.NoStep         `json:"no_step,omitzero"`
	Opened         time.Time               `json:"opened"`
	Recommendation *schemas.Recommendation `json:"recommendation,omitzero"`
	Revision       int                     `json:"revision,omitzero"`
	RootCause      schemas.Cause           `json:"root_cause"`
	Sentences      []schemas.Sentence      `json:"sentences,omitzero"`
	Severity       string                  `json:"severity,omitzero"`
	Similar        []SimilarIncident       `json:"similar,omitzero"` // Closed incidents of the same fault, the most alike first, at most 5; not in lists
	Site           string                  `json:"site,omitzero"`
	Status         string                  `json:"status"` // open, repair, closed or merged
	Step           *schemas.Sentence       `json:"step,omitzero"`
	Summary        *schemas.Sentence       `json:"summary,omitzero"`
	Updated        time.Time               `json:"updated"`
	Workloads      []string                `json:"workloads"`
	WouldChange    []schemas.Sentence      `json:"would_change,omitzero"` // What would speak for another cause
}

// IncidentRecord: as the document has it.
type IncidentRecord struct {
	Bins             []IncidentBin   `json:"bins"`                       // By the confidence that was said
	CalibrationError *float64        `json:"calibration_error,omitzero"` // Mean distance of the confidence from the share that was right, over the bins
	Closed           int             `json:"closed"`                     // Incidents that have closed, judged or not
	Enough           bool            `json:"enough"`                     // Whether enough are judged for a share to mean something
	Faults           []IncidentFault `json:"faults"`                     // By the fault that it was, most frequent first
	Judged           int             `json:"judged"`                     // Incidents on which a verdict stands
	NoIncident       int             `json:"no_incident"`                // Of those, that were none
	Parameters       int64           `json:"parameters"`                 // Version of the learned parameters in force; 0 is none
	Right            int             `json:"right"`                      // Of those, with the right resource as root cause
	SecondsP50       *float64        `json:"seconds_p50,omitzero"`       // Median time from the opening of an incident until the right cause was named and stayed
	SecondsP95       *float64        `json:"seconds_p95,omitzero"`
	Since            time.Time       `json:"since"` // The counts begin here
	Wrong            int             `json:"wrong"` // Of those, with another
}

// NewCorrection: as the document has it.
type NewCorrection struct {
	Fault    string `json:"fault,omitzero"` // What was wrong with it, of the verdict cause: one of GET /faults, or unknown
	Note     string `json:"note,omitzero"`
	Resource string `json:"resource,omitzero"` // The cause, of the verdict cause: a resource by any of its names, or a workload
	Verdict  string `json:"verdict"`           // Whether the root cause is right, the cause was another, this was no incident, or what was said before no longer stands; one of right, cause, no_incident, withdrawn
}

// JoinTokenList: as the document has it.
type JoinTokenList struct {
	Items  []JoinToken `json:"items"`
	Listen string      `json:"listen,omitzero"` // Where this process lets agents dial in (tunnel.listen); absent if it does not, or another process does
	Next   string      `json:"next,omitzero"`
}

// JoinToken: as the document has it.
type JoinToken struct {
	Accept      bool      `json:"accept"`
	Created     time.Time `json:"created"`
	CreatedBy   string    `json:"created_by"`
	Expires     time.Time `json:"expires"` // Until then machines may join
	Name        string    `json:"name"`
	Refused     int64     `json:"refused,omitzero"`      // How often it was shown in vain
	RefusedAt   time.Time `json:"refused_at,omitzero"`   // When it was last
	RefusedFrom string    `json:"refused_from,omitzero"` // And from where
	Revoked     time.Time `json:"revoked,omitzero"`
	RevokedBy   string    `json:"revoked_by,omitzero"`
	Server      string    `json:"server,omitzero"` // The server that it is for alone
	State       string    `json:"state"`           // open, used (up), expired or revoked
	Token       string    `json:"token,omitzero"`  // The secret; shown once, when it is created
	Used        int64     `json:"used"`
	Uses        int64     `json:"uses"`
}

// NewJoinToken: as the document has it.
type NewJoinToken struct {
	Accept    bool   `json:"accept,omitzero"`     // What its machines propose is accepted at once where it contradicts nothing
	ExpiresIn int64  `json:"expires_in,omitzero"` // For how many seconds machines may join, 86400 if absent; who has joined stays
	Name      string `json:"name"`                // Letters, digits and . _ @ -; not yet taken
	Server    string `json:"server,omitzero"`     // The server that its machine is; anybody if absent
	Uses      int    `json:"uses,omitzero"`       // Machines that may join with it, 1 if absent; one for a server
}

// EdgeProposalList: as the document has it.
type EdgeProposalList struct {
	Items      []schemas.EdgeProposal `json:"items"`
	Next       string                 `json:"next,omitzero"`
	Parameters int64                  `json:"parameters"` // Version of the learned parameters that is in force; 0: the fault records as they are
}

// NewEdgeDecision: as the document has it.
type NewEdgeDecision struct {
	Decision string `json:"decision"`       // withdrawn takes an acceptance back; one of accepted, declined, withdrawn
	Fault    string `json:"fault,omitzero"` // Of accepted: one of the causes; the first if absent
	Reason   string `json:"reason"`
}

// Me: as the document has it.
type Me struct {
	Grants      []PoolRight `json:"grants,omitzero"`  // What the caller may in some pools
	History     bool        `json:"history,omitzero"` // Whether a history store is connected
	Mode        string      `json:"mode"`             // Mode of control: observe, dry-run, approve or enforce
	Name        string      `json:"name"`
	Permissions []string    `json:"permissions"`
	Role        string      `json:"role"` // one of viewer, operator, engineer, admin
	Simulated   bool        `json:"simulated"`
	User        *MyUser     `json:"user,omitzero"`
	Version     string      `json:"version"`
}

// Credential: as the document has it.
type Credential struct {
	Code  string `json:"code,omitzero"`  // A one-time code
	Token string `json:"token,omitzero"` // A token for scripts
}

// LoginCode: as the document has it.
type LoginCode struct {
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// LoginMethods: as the document has it.
type LoginMethods struct {
	OIDC *LoginService `json:"oidc,omitzero"` // Absent where there is no login service
}

// Machine: as the document has it.
type Machine struct {
	Address   string    `json:"address,omitzero"`
	Admitted  bool      `json:"admitted"`       // Neither it nor its token is revoked
	Doubt     string    `json:"doubt,omitzero"` // Why it stands nowhere, where there is a reason
	Hostname  string    `json:"hostname,omitzero"`
	Joined    time.Time `json:"joined"`
	Key       string    `json:"key"` // SHA-256 of its public key, hex
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revoked_by,omitzero"`
	Seen      time.Time `json:"seen"` // When it last dialled in
	Serial    string    `json:"serial,omitzero"`
	Server    string    `json:"server,omitzero"` // Which server it is; absent if it stands nowhere yet
	Token     string    `json:"token"`           // With which it joined
	UUID      string    `json:"uuid,omitzero"`
	Version   string    `json:"version,omitzero"` // Of its agent, as it told last
}

// MaintenanceList: as the document has it.
type MaintenanceList struct {
	Items []schemas.Maintenance `json:"items"`
	Next  string                `json:"next,omitzero"`
	Works []MaintenanceWork     `json:"works"` // The kinds of work that can be declared
}

// NewMaintenance: as the document has it.
type NewMaintenance struct {
	DurationSeconds int64             `json:"duration_seconds,omitzero"` // In place of until; at most 14 days, 92 of a freeze
	From            time.Time         `json:"from,omitzero"`             // Now, if absent; at most a day ago
	GraceSeconds    *int              `json:"grace_seconds,omitzero"`    // 600 if absent
	Match           map[string]string `json:"match,omitzero"`            // All resources that have these attributes, as of now; kind is the kind, within a resource that they are part of
	Pools           []string          `json:"pools,omitzero"`            // Pools whose servers are frozen, of a freeze alone
	Reason          string            `json:"reason"`
	Resources       []string          `json:"resources,omitzero"` // By any of their names: servers, switches, racks, rows, sites, PDUs, or parts that work is done on
	Until           time.Time         `json:"until,omitzero"`     // Or give duration_seconds; at most 14 days after from, 92 of a freeze
	Work            string            `json:"work,omitzero"`      // The kind of work, maintenance if absent; freeze keeps control from starting anything that ends what runs
}

// ChangedMaintenance: as the document has it.
type ChangedMaintenance struct {
	DurationSeconds int64     `json:"duration_seconds,omitzero"` // From its beginning, in place of until
	GraceSeconds    *int      `json:"grace_seconds,omitzero"`
	Reason          *string   `json:"reason,omitzero"`
	Until           time.Time `json:"until,omitzero"` // Or give duration_seconds; at most 14 days after from, 92 of a freeze
}

// PowerRequest: as the document has it.
type PowerRequest struct {
	Action string `json:"action"`         // one of power_on, power_off, reboot, power_cycle, ac_cycle, nmi, reset_bmc, cap_power, uncap_power
	Force  bool   `json:"force,omitzero"` // Do it though jobs of the scheduler run on the server; with `power_off`, take the power away without shutting the system down
	Watts  int    `json:"watts,omitzero"` // With `cap_power`, what the server may draw; `uncap_power` puts back what was set before
}

// NewPool: as the document has it.
type NewPool struct {
	Description string `json:"description,omitzero"`
	Name        string `json:"name"`
}

// ChangedPool: as the document has it.
type ChangedPool struct {
	Description *string `json:"description,omitzero"`
	Name        string  `json:"name,omitzero"`
}

// PredictionList: as the document has it.
type PredictionList struct {
	HorizonSeconds float64      `json:"horizon_seconds"` // The longest horizon of the page
	Items          []Prediction `json:"items"`
	Next           string       `json:"next,omitzero"`
}

// Prediction: A part that is expected to fail, and when.
type Prediction struct {
	ETAP10           time.Time          `json:"eta_p10,omitzero"`
	ETAP50           time.Time          `json:"eta_p50,omitzero"`
	ETAP90           time.Time          `json:"eta_p90,omitzero"`
	Evidence         []schemas.Evidence `json:"evidence"`
	Explanation      string             `json:"explanation,omitzero"`
	Failure          string             `json:"failure,omitzero"`
	FailureTitle     map[string]string  `json:"failure_title,omitzero"` // What the failure is called, by language
	HorizonSeconds   float64            `json:"horizon_seconds"`
	ID               string             `json:"id"`
	Job              string             `json:"job,omitzero"` // The job that runs on the server now
	Limit            Limit              `json:"limit"`
	Metric           string             `json:"metric,omitzero"`
	Model            schemas.Model      `json:"model"`
	Opened           time.Time          `json:"opened,omitzero"` // When it was first published
	Probability      float64            `json:"probability"`
	Resource         string             `json:"resource"`
	ResourceID       string             `json:"resource_id"`
	FirstProbability float64            `json:"said,omitzero"` // The probability that was first published
	Sentence         *schemas.Sentence  `json:"sentence,omitzero"`
	Server           string             `json:"server"`
	Site             string             `json:"site,omitzero"`
	SlopePerHour     float64            `json:"slope_per_hour"`
	State            string             `json:"state"`
	Time             time.Time          `json:"time"`
	Unit             string             `json:"unit,omitzero"`
	Value            float64            `json:"value"`
}

// PredictionRecord: as the document has it.
type PredictionRecord struct {
	Averted     int              `json:"averted"` // Moved away from the limit, as after a repair: neither right nor wrong
	CameTrue    int              `json:"came_true"`
	Expired     int              `json:"expired"`               // False alarms
	LeadSeconds *float64         `json:"lead_seconds,omitzero"` // Median time from the first prediction to the failure
	Missed      int              `json:"missed"`                // Failures of a predictable kind without a prediction
	Open        int              `json:"open"`
	Bins        []ProbabilityBin `json:"said"`  // By first published probability
	Since       time.Time        `json:"since"` // The counts begin here
}

// Proposal: What a node agent would change of the inventory.
type Proposal struct {
	Address     string         `json:"address,omitzero"`
	Conflicts   int            `json:"conflicts"`
	Decided     time.Time      `json:"decided,omitzero"`
	DecidedBy   string         `json:"decided_by,omitzero"`
	Differences []Difference   `json:"differences"`
	Digest      string         `json:"digest"`   // Of the description that it comes from
	Fragment    map[string]any `json:"fragment"` // What accepting it adds, as topology.json
	Hostname    string         `json:"hostname,omitzero"`
	ID          string         `json:"id"`               // Follows from what it says
	Known       bool           `json:"known"`            // The inventory has the server
	Machine     string         `json:"machine,omitzero"` // The key of a machine that dials in
	Rack        string         `json:"rack,omitzero"`    // Where the person who accepted it put the server
	Server      string         `json:"server"`
	State       string         `json:"state"` // one of open, accepted, declined
	Time        time.Time      `json:"time"`
	Token       string         `json:"token,omitzero"`
	Why         string         `json:"why,omitzero"`
}

// NewProposalDecision: as the document has it.
type NewProposalDecision struct {
	Decision string `json:"decision"`        // one of accepted, declined
	Rack     string `json:"rack,omitzero"`   // The rack of the inventory in which the server stands, for one that has none; only to accept
	Reason   string `json:"reason,omitzero"` // Required to decline, and to accept a conflict
}

// Quota: as the document has it.
type Quota struct {
	CreatedAt  time.Time    `json:"created_at"`
	ID         string       `json:"id"`
	MaxGPUs    *int64       `json:"max_gpus"`      // At a time; null is no limit
	MaxSeconds *int64       `json:"max_seconds"`   // Of one allocation; null is no limit
	MaxServers *int64       `json:"max_servers"`   // Whole ones at a time; null is no limit
	Pool       string       `json:"pool,omitzero"` // Absent: all pools together
	Team       string       `json:"team,omitzero"` // Absent: each team without a quota of its own in that pool, and each user without a team
	UpdatedAt  time.Time    `json:"updated_at"`
	Usage      []QuotaUsage `json:"usage"` // What those whom it binds, and you may know of, have now, the most first; at most 100
}

// NewQuota: as the document has it.
type NewQuota struct {
	MaxGPUs    *int64 `json:"max_gpus,omitzero"`
	MaxSeconds *int64 `json:"max_seconds,omitzero"`
	MaxServers *int64 `json:"max_servers,omitzero"`
	Pool       string `json:"pool,omitzero"` // By id or name; absent: all pools together
	Team       string `json:"team,omitzero"` // By id or name; absent: each team without a quota of its own in that pool, and each user without a team
}

// ChangedQuota: as the document has it.
type ChangedQuota struct {
	MaxGPUs    *int64 `json:"max_gpus,omitzero"`
	MaxSeconds *int64 `json:"max_seconds,omitzero"`
	MaxServers *int64 `json:"max_servers,omitzero"`
}

// RefusedDescription: as the document has it.
type RefusedDescription struct {
	Address string    `json:"address,omitzero"` // Where it was read
	Machine string    `json:"machine,omitzero"` // The key of a machine that dials in
	Read    time.Time `json:"read"`
	Refused string    `json:"refused"`          // Why it is not taken
	Server  string    `json:"server,omitzero"`  // Where its machine stands, if anywhere
	Since   time.Time `json:"since"`            // Since when it has been refused for that
	Token   string    `json:"token,omitzero"`   // With which it joined
	Version string    `json:"version,omitzero"` // Of the agent
}

// NewReservation: as the document has it.
type NewReservation struct {
	EndTime   time.Time `json:"end_time"`
	GPUs      int64     `json:"gpus,omitzero"`
	Name      string    `json:"name"`
	Pool      string    `json:"pool"`                // By id or name
	Servers   int64     `json:"servers,omitzero"`    // Whole ones
	StartTime time.Time `json:"start_time,omitzero"` // Now if absent
	Team      string    `json:"team"`                // By id or name
}

// ChangedReservation: as the document has it.
type ChangedReservation struct {
	EndTime   time.Time `json:"end_time,omitzero"`
	GPUs      *int64    `json:"gpus,omitzero"`
	Name      string    `json:"name,omitzero"`
	Pool      string    `json:"pool,omitzero"`
	Servers   *int64    `json:"servers,omitzero"`
	StartTime time.Time `json:"start_time,omitzero"`
	Team      string    `json:"team,omitzero"`
}

// ResourceRef: as the document has it.
type ResourceRef struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Resource: A resource of the inventory.
type Resource struct {
	Attrs  map[string]string `json:"attrs"`
	ID     string            `json:"id"`
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Parent *ResourceRef      `json:"parent,omitzero"`
	Parts  []ResourceRef     `json:"parts"` // Its direct parts
	Rack   *ResourceRef      `json:"rack,omitzero"`
	Server *ResourceRef      `json:"server,omitzero"`
	Site   *ResourceRef      `json:"site,omitzero"`
}

// SearchResults: as the document has it.
type SearchResults struct {
	Items []SearchResult `json:"items"`
	More  bool           `json:"more"`
}

// ServerRecord: as the document has it.
type ServerRecord struct {
	Allocatable    bool                      `json:"allocatable"` // Whether it could be given as a whole now
	Allocation     *schemas.ServerAllocation `json:"allocation"`
	CreatedAt      time.Time                 `json:"created_at"`
	Health         string                    `json:"health"` // What telemetry says of it now; it is stored nowhere. Of another team's server it is unknown; one of ok, warning, critical, affected, predicted, acting, out, unknown
	Hold           string                    `json:"hold"`   // Why nobody is given it; empty is no hold
	HoldBy         string                    `json:"hold_by,omitzero"`
	ID             string                    `json:"id"`
	InInventory    bool                      `json:"in_inventory"`
	IPMIIP         string                    `json:"ipmi_ip"`
	Labels         map[string]string         `json:"labels"`
	ManagementIP   string                    `json:"management_ip"`
	Model          string                    `json:"model"`
	Name           string                    `json:"name"`
	Place          Place                     `json:"place"`
	Pool           string                    `json:"pool"`
	RedfishURL     string                    `json:"redfish_url"`
	Risk           float64                   `json:"risk"` // Probability, 0 to 1, that a part of it fails within the horizon of the predictions; 0 where none is predicted
	SerialNumber   string                    `json:"serial_number"`
	Status         string                    `json:"status"` // Of its life; its health is telemetry, and state tells it; one of discovered, provisioning, ready, error, retired
	StatusReason   string                    `json:"status_reason,omitzero"`
	StatusSentence *schemas.Sentence         `json:"status_sentence,omitzero"`
	StatusSince    time.Time                 `json:"status_since"`
	UpdatedAt      time.Time                 `json:"updated_at"`
	WhyNot         string                    `json:"why_not,omitzero"` // Why it could not
}

// NewServer: as the document has it.
type NewServer struct {
	Credential   string            `json:"credential,omitzero"` // The name of a secret for its board controller, never the secret
	Found        string            `json:"found,omitzero"`      // Id of what a sweep has found: what is left out here is taken from there, with the interfaces
	GPUs         []NewGPU          `json:"gpus,omitzero"`
	IPMIIP       string            `json:"ipmi_ip,omitzero"` // Host, or host:port
	Labels       map[string]string `json:"labels,omitzero"`  // Names have 1 to 64 letters, digits and . _ / -
	ManagementIP string            `json:"management_ip,omitzero"`
	Model        string            `json:"model,omitzero"`
	Name         string            `json:"name"`            // Letters, digits and . _ -; no other resource's
	Parent       string            `json:"parent,omitzero"` // The rack that it stands in, or a row or site
	Pool         string            `json:"pool,omitzero"`   // By id or name
	RedfishURL   string            `json:"redfish_url,omitzero"`
	SerialNumber string            `json:"serial_number,omitzero"`
}

// Server: as the document has it.
type Server struct {
	Actions        []schemas.Action          `json:"actions"`
	Allocatable    *bool                     `json:"allocatable,omitzero"` // Whether it could be given as a whole now
	Allocation     *schemas.ServerAllocation `json:"allocation"`
	Consoles       []Console                 `json:"consoles,omitzero"` // What its BMC offers (Redfish), for who may operate it; absent for everybody else. Nothing is opened by a look at it
	Contact        []Contact                 `json:"contact"`
	CreatedAt      time.Time                 `json:"created_at,omitzero"`
	Events         []Alert                   `json:"events"`
	Health         string                    `json:"health"`        // What telemetry says of it now; it is stored nowhere. Of another team's server it is unknown; one of ok, warning, critical, affected, predicted, acting, out, unknown
	Hold           string                    `json:"hold,omitzero"` // Why nobody is given it; empty is no hold
	HoldBy         string                    `json:"hold_by,omitzero"`
	ID             string                    `json:"id"`
	InInventory    *bool                     `json:"in_inventory,omitzero"`
	Incidents      []Incident                `json:"incidents"`
	Inventory      []Fact                    `json:"inventory"`
	IPMIIP         string                    `json:"ipmi_ip,omitzero"`
	Job            *ServerJob                `json:"job,omitzero"`
	Kind           string                    `json:"kind"`
	Labels         map[string]string         `json:"labels,omitzero"`
	Links          []PartLink                `json:"links"`
	ManagementIP   string                    `json:"management_ip,omitzero"`
	Model          string                    `json:"model,omitzero"`
	Name           string                    `json:"name"`
	Parts          []ServerParts             `json:"parts"`
	Place          *Place                    `json:"place,omitzero"`
	Pool           string                    `json:"pool,omitzero"`
	Predictions    []Prediction              `json:"predictions"`
	Rack           string                    `json:"rack"`
	RedfishURL     string                    `json:"redfish_url,omitzero"`
	Risk           float64                   `json:"risk"` // Probability, 0 to 1, that a part of it fails within the horizon of the predictions; 0 where none is predicted
	Serial         string                    `json:"serial,omitzero"`
	SerialNumber   string                    `json:"serial_number,omitzero"`
	Site           string                    `json:"site"`
	State          int                       `json:"state"`
	Status         string                    `json:"status,omitzero"` // Of its life; its health is telemetry, and state tells it; one of discovered, provisioning, ready, error, retired
	StatusReason   string                    `json:"status_reason,omitzero"`
	StatusSentence *schemas.Sentence         `json:"status_sentence,omitzero"`
	StatusSince    time.Time                 `json:"status_since,omitzero"`
	UpdatedAt      time.Time                 `json:"updated_at,omitzero"`
	WhyNot         string                    `json:"why_not,omitzero"` // Why it could not
}

// ChangedServer: as the document has it.
type ChangedServer struct {
	Credential   *string           `json:"credential,omitzero"` // The name of a secret for its board controller, never the secret
	Hold         *string           `json:"hold,omitzero"`       // Why nobody is to be given it; empty ends the hold
	IPMIIP       *string           `json:"ipmi_ip,omitzero"`    // Host, or host:port
	Labels       map[string]string `json:"labels,omitzero"`     // Names have 1 to 64 letters, digits and . _ / -
	ManagementIP *string           `json:"management_ip,omitzero"`
	Model        *string           `json:"model,omitzero"`
	Parent       *string           `json:"parent,omitzero"` // The rack that it stands in, or a row or site
	Pool         *string           `json:"pool,omitzero"`   // By id or name
	RedfishURL   *string           `json:"redfish_url,omitzero"`
	SerialNumber *string           `json:"serial_number,omitzero"`
	Status       string            `json:"status,omitzero"`        // one of discovered, provisioning, ready, error, retired
	StatusReason string            `json:"status_reason,omitzero"` // Why its status changes
}

// BiosRequest: as the document has it.
type BiosRequest struct {
	Attributes map[string]string `json:"attributes"`     // By their names in Redfish
	Force      bool              `json:"force,omitzero"` // With `reset`, do it though jobs of the scheduler run on the server
	Reset      bool              `json:"reset,omitzero"` // Restart the server, so that they are in force
}

// ServerConfig: as the document has it.
type ServerConfig struct {
	Applied       map[string]any     `json:"applied"`        // The BIOS attributes in force, as control read them last; null where it has not
	AppliedReason string             `json:"applied_reason"` // When that was, and why not all of it is known
	BIOSConfig    map[string]any     `json:"bios_config"`
	CreatedAt     time.Time          `json:"created_at"`
	CreatedBy     string             `json:"created_by"`
	Differences   []ConfigDifference `json:"differences"` // Attributes that were not in force: pending until the next reset, or not taken
	ID            string             `json:"id"`
	Keeping       *ConfigKeeping     `json:"keeping"`
	NetworkConfig map[string]any     `json:"network_config"`
	RAIDConfig    map[string]any     `json:"raid_config"`
	Server        string             `json:"server"`
	ServerID      string             `json:"server_id"`
	State         string             `json:"state"`   // stored: it is kept, and nobody reads what is in force; unknown: not all of it is read now; one of stored, in_force, differs, unknown
	Version       int64              `json:"version"` // From 1, by one with each change
}

// NewServerConfig: as the document has it.
type NewServerConfig struct {
	BIOSConfig    map[string]any `json:"bios_config,omitzero"` // At most 64 KiB
	NetworkConfig map[string]any `json:"network_config,omitzero"`
	RAIDConfig    map[string]any `json:"raid_config,omitzero"`
}

// FirmwareRequest: as the document has it.
type FirmwareRequest struct {
	Component string `json:"component"`      // Its id or name in the BMC's firmware inventory, or a part of them, such as bmc, bios or gpu
	Force     bool   `json:"force,omitzero"` // Do it though jobs of the scheduler run on the server
	Image     string `json:"image"`          // URL of the image, http or https
	Sha256    string `json:"sha256"`         // Digest of the image
	Version   string `json:"version"`        // That it has afterwards
}

// NewGPU: as the document has it.
type NewGPU struct {
	CUDAVersion   string   `json:"cuda_version,omitzero"`
	DriverVersion string   `json:"driver_version,omitzero"`
	Index         *int     `json:"index,omitzero"`
	MemoryGB      *float64 `json:"memory_gb,omitzero"`
	Model         string   `json:"model,omitzero"`
	Name          string   `json:"name,omitzero"` // Its name within the server; gpu and its index if absent
	PCI           string   `json:"pci,omitzero"`  // As 0000:1b:00.0
	SerialNumber  string   `json:"serial_number,omitzero"`
	UUID          string   `json:"uuid,omitzero"`
}

// PlotList: as the document has it.
type PlotList struct {
	Items        []Plot  `json:"items"`
	RangeSeconds float64 `json:"range_seconds"`
}

// PoolRequest: as the document has it.
type PoolRequest struct {
	Action string `json:"action"` // Take it out until a repair or somebody gives it back; take it out until somebody gives it back; give it back; one of drain, quarantine, uncordon
}

// ServerStatus: as the document has it.
type ServerStatus struct {
	AgentReachable   *bool       `json:"agent_reachable"` // The collector of the node agent hears of it
	BMCReachable     *bool       `json:"bmc_reachable"`   // A collector that reads the board controller hears of it; null: none reads it
	Fans             []FanStatus `json:"fans"`
	Health           string      `json:"health"` // ok, warning, critical, affected, predicted, acting, out or unknown
	ID               string      `json:"id"`
	InletTemperature *float64    `json:"inlet_temperature"` // °C
	LastBoot         *time.Time  `json:"last_boot"`
	Name             string      `json:"name"`
	Power            *string     `json:"power"`      // one of on, off
	PowerDraw        *float64    `json:"power_draw"` // W
	PSUs             []PSUStatus `json:"psus"`
	Telemetry        []Contact   `json:"telemetry"` // How old the newest reading of each collector is
	Timestamp        *time.Time  `json:"timestamp"` // Of the newest reading
}

// NewTeam: as the document has it.
type NewTeam struct {
	Description string   `json:"description,omitzero"`
	Members     []string `json:"members,omitzero"` // Users, by id or username
	Name        string   `json:"name"`             // Letters, digits and . _ @ -; no other team's in either case
}

// ChangedTeam: as the document has it.
type ChangedTeam struct {
	Description *string  `json:"description,omitzero"`
	Members     []string `json:"members,omitzero"`
	Name        string   `json:"name,omitzero"`
}

// NewTemplate: as the document has it.
type NewTemplate struct {
	Architectures []string       `json:"architectures"`
	Description   string         `json:"description,omitzero"`
	Name          string         `json:"name"`
	OsFamily      string         `json:"os_family"`           // one of talos, flatcar, ubuntu, other
	Parameters    map[string]any `json:"parameters,omitzero"` // JSON Schema (2020-12) of an object. One that is `writeOnly`, or of the format `password`, is a reference to a secret, `secret:NAME`
	Text          string         `json:"text"`                // Template of a workflow of Tinkerbell: YAML with placeholders of text/template
}

// ChangedTemplate: as the document has it.
type ChangedTemplate struct {
	Architectures []string       `json:"architectures,omitzero"`
	Description   *string        `json:"description,omitzero"`
	OsFamily      string         `json:"os_family,omitzero"` // one of talos, flatcar, ubuntu, other
	Parameters    map[string]any `json:"parameters,omitzero"`
	Status        string         `json:"status,omitzero"` // one of active, retired
	Text          string         `json:"text,omitzero"`
}

// NewRendering: as the document has it.
type NewRendering struct {
	Parameters map[string]any `json:"parameters,omitzero"` // What the schema of the template asks for
	Server     string         `json:"server"`              // For which server, by any of its names
	Version    int64          `json:"version,omitzero"`    // Absent: the latest
}

// Token: as the document has it.
type Token struct {
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`   // Absent without expiry
	LastUsed time.Time `json:"last_used,omitzero"` // To the minute; absent if never used
	Name     string    `json:"name"`
	Role     string    `json:"role"`          // one of viewer, operator, engineer, admin
	User     string    `json:"user,omitzero"` // Username of whose it is; absent for a script's
}

// CreatedToken: as the document has it.
type CreatedToken struct {
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // Absent without expiry
	Name    string    `json:"name"`
	Role    string    `json:"role"`          // one of viewer, operator, engineer, admin
	Token   string    `json:"token"`         // The secret; shown once
	User    string    `json:"user,omitzero"` // Username of whose it is; absent for a script's
}

// NewToken: as the document has it.
type NewToken struct {
	ExpiresIn int64  `json:"expires_in,omitzero"` // Validity in seconds, at most 100 years; 0 means no expiry
	Name      string `json:"name"`                // Letters, digits and . _ @ -; not yet taken
	Role      string `json:"role"`                // one of viewer, operator, engineer, admin
	User      string `json:"user,omitzero"`       // Whose it is, by id or username: it may what both its role and theirs may, while they are active. Absent: a script's
}

// ChangedToken: as the document has it.
type ChangedToken struct {
	ExpiresIn *int64 `json:"expires_in,omitzero"` // Validity in seconds from now on, at most 100 years; 0 means no expiry
	Role      string `json:"role,omitzero"`       // one of viewer, operator, engineer, admin
}

// NewUser: as the document has it.
type NewUser struct {
	Email    string `json:"email"`           // Nobody else's in either case
	Role     string `json:"role"`            // one of viewer, operator, engineer, admin
	Status   string `json:"status,omitzero"` // active if absent; one of active, inactive
	Username string `json:"username"`        // Letters, digits and . _ @ -; nobody else's in either case
}

// ChangedUser: as the document has it.
type ChangedUser struct {
	Email    string `json:"email,omitzero"`
	Role     string `json:"role,omitzero"`   // one of viewer, operator, engineer, admin
	Status   string `json:"status,omitzero"` // one of active, inactive
	Username string `json:"username,omitzero"`
}

// NewWebhook: as the document has it.
type NewWebhook struct {
	Active *bool    `json:"active,omitzero"`
	Name   string   `json:"name"`   // Letters, digits and . _ @ -; no other webhook's in either case
	Secret string   `json:"secret"` // `whsec_` and 24 to 64 random bytes in base64
	Topics []string `json:"topics,omitzero"`
	URL    string   `json:"url"` // https, or http on this machine; without user and password
}

// ChangedWebhook: as the document has it.
type ChangedWebhook struct {
	Active *bool    `json:"active,omitzero"`
	Name   string   `json:"name,omitzero"`
	Secret string   `json:"secret,omitzero"`
	Topics []string `json:"topics,omitzero"`
	URL    string   `json:"url,omitzero"`
}

// NewWorkflow: as the document has it.
type NewWorkflow struct {
	AllocationID    string         `json:"allocation_id,omitzero"` // Of deploy and cleanup, which belong to an allocation
	Parameters      map[string]any `json:"parameters,omitzero"`    // Of the template, as its schema says. A secret, by its name, is for those who run the place
	ServerID        string         `json:"server_id"`
	Template        string         `json:"template,omitzero"`         // Of bring_up: install with this template, by id or name, instead of what is pinned to the server
	TemplateVersion int64          `json:"template_version,omitzero"` // Absent is the latest
	Type            string         `json:"type"`                      // one of deploy, cleanup, config, validate, bring_up
}

// WorkflowOfAllocation: as the document has it.
type WorkflowOfAllocation struct {
	AllocationID string `json:"allocation_id"`
	ServerID     string `json:"server_id"`
}

// FieldProblem: as the document has it.
type FieldProblem struct {
	Detail string `json:"detail"`
	Field  string `json:"field"`         // Its name; within a body with those around it, such as members[2]
	In     string `json:"in"`            // Where the field is; stored is in what was stored before; one of body, query, path, header, stored
	Line   int    `json:"line,omitzero"` // Of a text, from 1; absent where it is of none
}

// AllocatedServer: as the document has it.
type AllocatedServer struct {
	GPUs   []AllocatedGPU `json:"gpus"`
	Health string         `json:"health"` // one of ok, warning, critical, affected, predicted, acting, out, unknown
	ID     string         `json:"id"`
	Name   string         `json:"name"`
	Status string         `json:"status"` // Of its life
}

// Place: Where something stands.
type Place struct {
	Parent string `json:"parent,omitzero"` // What it is directly in
	Rack   string `json:"rack,omitzero"`
	Row    string `json:"row,omitzero"`
	Site   string `json:"site,omitzero"`
}

// AssetDifference: as the document has it.
type AssetDifference struct {
	Attribute string `json:"attribute"`
	Is        string `json:"is,omitzero"`  // Absent: it has none
	Was       string `json:"was,omitzero"` // Absent: it had none
}

// AuditChain: as the document has it.
type AuditChain struct {
	BrokenAt int64     `json:"broken_at,omitzero"` // The first row that does not hold
	Checked  time.Time `json:"checked"`            // When all rows were last read
	Holds    bool      `json:"holds"`
	Rows     int64     `json:"rows"` // Rows that hold, counted from the first
}

// FleetHistory: Alerts per step, and the incidents that explain them.
type FleetHistory struct {
	Alerts    []int       `json:"alerts"`
	Incidents []FleetMark `json:"incidents"`
	Start     time.Time   `json:"start"`
	Step      int         `json:"step"` // s
}

// FleetJob: as the document has it.
type FleetJob struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
}

// FleetRack: as the document has it.
type FleetRack struct {
	Feeds []int  `json:"feeds"`       // State of feed A and of feed B
	ID    string `json:"id,omitzero"` // Absent with ids=false
	Leaf  int    `json:"leaf"`        // State of the rack's leaf switch
	Name  string `json:"name"`
	Row   string `json:"row"`
	Site  string `json:"site"`
}

// FleetServers: Columns of equal length. A state is 0 healthy, 1 warning, 2 critical, 3 affected, 4 fails next, 5 in
// repair, 6 out, 7 no contact; `gpus` has one such digit per GPU.
type FleetServers struct {
	GPUs  []string  `json:"gpus"`
	ID    []string  `json:"id,omitzero"` // Absent with ids=false
	Job   []int     `json:"job"`         // Index in jobs, -1 for none
	Load  []*int    `json:"load"`        // %
	Name  []string  `json:"name"`
	Power []*int    `json:"power"` // W
	Rack  []int     `json:"rack"`  // Index in racks
	Risk  []float64 `json:"risk"`  // Probability that a part fails within its horizon, %
	State []int     `json:"state"`
	Temp  []*int    `json:"temp"` // Hottest GPU, °C
}

// FleetSummary: as the document has it.
type FleetSummary struct {
	GPUs             FleetGPUs `json:"gpus"`
	Name             string    `json:"name"`
	PowerKW          *float64  `json:"power_kw"` // Unknown without telemetry
	Racks            int       `json:"racks"`
	SamplesPerSecond *float64  `json:"samples_per_second"`
	Servers          int       `json:"servers"`
	Simulated        bool      `json:"simulated"`
	Sites            int       `json:"sites"`
}

// GPUReadings: as the document has it.
type GPUReadings struct {
	MemoryClock *int64   `json:"memory_clock"`
	PowerLimit  *float64 `json:"power_limit"`
}

// ConfigDifference: A setting that is not in force as it is desired.
type ConfigDifference struct {
	Applied any    `json:"applied"`
	Desired any    `json:"desired"`
	Field   string `json:"field"`
}

// ConfigKeeping: as the document has it.
type ConfigKeeping struct {
	AppliedAt      time.Time         `json:"applied_at,omitzero"`
	AppliedVersion int64             `json:"applied_version"` // The last one that was in force; 0 is none
	Attempts       int               `json:"attempts"`        // Of this version; within a day, where it was in force before
	Coming         map[string]string `json:"coming"`          // What the next start of the server puts in force
	Detail         string            `json:"detail,omitzero"` // Why
	Drifts         []ConfigDrift     `json:"drifts"`
	Found          map[string]string `json:"found"` // Settings as control read them last
	NextAttemptAt  time.Time         `json:"next_attempt_at,omitzero"`
	OperationID    string            `json:"operation_id,omitzero"` // Of what is under way
	ReadAt         time.Time         `json:"read_at,omitzero"`      // When they were read, to within an hour where nothing has changed
	Sentence       *schemas.Sentence `json:"sentence,omitzero"`
	State          string            `json:"state"`           // pending: not applied yet; applying: control is at it; awaits: set, and in force once the server has started anew; in_force: read to be as the version says; drifted: it was, and is not any more; rolled_back: it was not taken, and what was before is in force; held: attempts did not help, and a person has to look; cannot: nothing here sets it ; one of pending, applying, awaits, in_force, drifted, rolled_back, held, cannot
	Unread         string            `json:"unread,omitzero"` // Why they could not be read since
	Version        int64             `json:"version"`         // That control has looked at last
}

// GPUMetricColumn: as the document has it.
type GPUMetricColumn struct {
	Collector string     `json:"collector"` // Empty: nobody reads it
	Counter   bool       `json:"counter"`   // It only grows, until a reset
	Name      string     `json:"name"`
	Unit      string     `json:"unit"`
	Values    []*float64 `json:"values"`
}

// GPUMemory: Bytes.
type GPUMemory struct {
	Free     *float64 `json:"free"`
	Reserved *float64 `json:"reserved"`
	Total    *float64 `json:"total"`
	Used     *float64 `json:"used"`
}

// GPUUtilization: Percent.
type GPUUtilization struct {
	Compute         *float64 `json:"compute"`
	GPU             *float64 `json:"gpu"`
	Memory          *float64 `json:"memory"`
	MemoryBandwidth *float64 `json:"memory_bandwidth"`
}

// IncidentHolder: as the document has it.
type IncidentHolder struct {
	Allocation string   `json:"allocation"`
	Purpose    string   `json:"purpose"`
	Servers    []string `json:"servers"` // Those of them that it touches
	Team       string   `json:"team,omitzero"`
	User       string   `json:"user"`
}

// IncidentJob: as the document has it.
type IncidentJob struct {
	GPUs   int    `json:"gpus"`
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
}

// EvidenceLane: The evidence of one type and code on one line of the time axis.
type EvidenceLane struct {
	Code      string    `json:"code,omitzero"`
	Count     int       `json:"count"`
	ID        string    `json:"id"`
	Message   string    `json:"message,omitzero"`   // The message of one of them
	Offsets   []float64 `json:"offsets"`            // s since the first event, at most 200
	Resources []string  `json:"resources,omitzero"` // At most 200
	Role      string    `json:"role"`               // cause, effect or repeat
	Severity  string    `json:"severity"`
	Source    string    `json:"source,omitzero"`
	Type      string    `json:"type"`
}

// SimilarIncident: An incident of the past with the same fault, and what was done about it.
type SimilarIncident struct {
	Closed   time.Time `json:"closed"`
	CuredBy  []string  `json:"cured_by"` // Kinds of the actions that were done and verified, in their order; empty: nothing by Auspex
	ID       string    `json:"id"`
	Match    string    `json:"match"` // resource (the same), model (of the same kind and model) or fault (only that)
	Opened   time.Time `json:"opened"`
	Resource string    `json:"resource"`
}

// IncidentBin: as the document has it.
type IncidentBin struct {
	Confidence float64 `json:"confidence"` // Mean of those in the bin
	From       float64 `json:"from"`
	N          int     `json:"n"`
	Right      int     `json:"right"`
	To         float64 `json:"to"`
}

// IncidentFault: as the document has it.
type IncidentFault struct {
	Fault      string   `json:"fault"` // Empty: it was no incident
	N          int      `json:"n"`
	Right      int      `json:"right"`
	SecondsP50 *float64 `json:"seconds_p50,omitzero"`
	SecondsP95 *float64 `json:"seconds_p95,omitzero"`
}

// PoolRight: as the document has it.
type PoolRight struct {
	Permissions []string `json:"permissions"` // What the caller may do to servers of the pool, beside what they may everywhere
	Pool        string   `json:"pool"`        // Name
	Role        string   `json:"role"`        // one of operator, engineer, admin
}

// MyUser: Absent where a token or session is nobody's.
type MyUser struct {
	ID       string   `json:"id"`
	Teams    []string `json:"teams"` // Names
	Username string   `json:"username"`
}

// LoginService: as the document has it.
type LoginService struct {
	Name  string `json:"name"`  // What the login page calls it
	Ready bool   `json:"ready"` // Whether it has been found
}

// MaintenanceWork: as the document has it.
type MaintenanceWork struct {
	Kinds []string `json:"kinds"` // Kinds of resources that it can be declared for
	Work  string   `json:"work"`
}

// Limit: as the document has it.
type Limit struct {
	Above  *float64 `json:"above,omitzero"`
	Below  *float64 `json:"below,omitzero"`
	Source string   `json:"source,omitzero"` // device: given by the device; default: of Auspex, since the device gives none; site: from the limits file of the site
}

// ProbabilityBin: as the document has it.
type ProbabilityBin struct {
	CameTrue int     `json:"came_true"`
	Ended    int     `json:"ended"` // Of those, came true or expired
	From     float64 `json:"from"`
	To       float64 `json:"to"`
}

// Difference: One thing in which an agent and the inventory differ.
type Difference struct {
	Agent     string   `json:"agent,omitzero"`     // What the agent says
	Attr      string   `json:"attr,omitzero"`      // Absent for the resource itself
	Inventory string   `json:"inventory,omitzero"` // What the inventory says
	Kind      string   `json:"kind"`               // Of the resource; network for a cable
	Others    []string `json:"others,omitzero"`    // Resources of the inventory that the conflict is with
	Reason    string   `json:"reason,omitzero"`    // Its id: host_name, kind, differs, elsewhere, told_twice, cable or port_taken
	Resource  string   `json:"resource"`
	Verb      string   `json:"verb"`         // added, changed or conflict
	Why       string   `json:"why,omitzero"` // Of a conflict, a sentence
}

// QuotaUsage: as the document has it.
type QuotaUsage struct {
	GPUs    int64  `json:"gpus"`
	Servers int64  `json:"servers"` // Whole ones
	Team    string `json:"team,omitzero"`
	User    string `json:"user,omitzero"` // Of a user without a team
}

// SearchResult: as the document has it.
type SearchResult struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`            // That of the resource, or incident or user
	Match   string `json:"match"`           // one of exact, prefix, substring
	Matched string `json:"matched"`         // In what it was found: id, name, serial, uuid, mac, pci, email or resource
	Name    string `json:"name"`            // Of an incident: what it blames, and for what
	Server  string `json:"server,omitzero"` // Of a part: what it is part of
}

// Console: as the document has it.
type Console struct {
	Command  string `json:"command,omitzero"` // That opens it where no link does; without a password, for which it asks
	Enabled  bool   `json:"enabled"`          // Whether the BMC has its service on
	Kind     string `json:"kind"`             // one of serial, graphical
	Protocol string `json:"protocol"`         // SSH, IPMI, Telnet or KVMIP
	Sessions int    `json:"sessions"`         // How many it takes at the same time
	URL      string `json:"url,omitzero"`     // Of a page of the BMC that leads to its graphical console, or ssh:// or telnet:// of a serial one; absent where the service is off
}

// Contact: When a collector last read this device.
type Contact struct {
	Collector string  `json:"collector"`
	Seconds   float64 `json:"seconds"`
}

// Fact: as the document has it.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ServerJob: as the document has it.
type ServerJob struct {
	ID     string    `json:"id"`
	Name   string    `json:"name,omitzero"`
	Since  time.Time `json:"since,omitzero"`
	Tenant string    `json:"tenant"`
}

// PartLink: as the document has it.
type PartLink struct {
	Kind string `json:"kind"`
	Part string `json:"part"`
	Peer string `json:"peer"`
}

// ServerParts: as the document has it.
type ServerParts struct {
	Kind   string   `json:"kind"`
	Names  []string `json:"names"`
	States string   `json:"states"` // One digit per part
}

// Plot: as the document has it.
type Plot struct {
	Avg        []*float64  `json:"avg"`
	Forecast   *Forecast   `json:"forecast,omitzero"`
	Limit      *Limit      `json:"limit,omitzero"`
	Max        []*float64  `json:"max"`
	Metric     string      `json:"metric"`
	Min        []*float64  `json:"min"`
	Peer       []*float64  `json:"peer,omitzero"`       // Median of the parts of the same kind in this device
	Query      string      `json:"query"`               // The same in PromQL
	Subject    string      `json:"subject"`             // The parts that were measured
	Thresholds []Threshold `json:"thresholds,omitzero"` // Thresholds of the device itself, the tightest of the parts shown
	Times      []float64   `json:"times"`               // s since 1970
	Unit       string      `json:"unit"`
}

// FanStatus: as the document has it.
type FanStatus struct {
	Duty    *float64 `json:"duty"` // Share of full speed that is asked for, 0 to 1
	Healthy *bool    `json:"healthy"`
	Name    string   `json:"name"`
	RPM     *float64 `json:"rpm"`
}

// PSUStatus: as the document has it.
type PSUStatus struct {
	Healthy      *bool    `json:"healthy"`
	InputPower   *float64 `json:"input_power"` // W
	InputPresent *bool    `json:"input_present"`
	Name         string   `json:"name"`
}

// AllocatedGPU: as the document has it.
type AllocatedGPU struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Status         string            `json:"status"`
	StatusReason   string            `json:"status_reason,omitzero"`
	StatusSentence *schemas.Sentence `json:"status_sentence,omitzero"`
}

// FleetMark: as the document has it.
type FleetMark struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
}

// FleetGPUs: as the document has it.
type FleetGPUs struct {
	Free    int `json:"free"`
	Healthy int `json:"healthy"`
	Out     int `json:"out"`
	Total   int `json:"total"`
	Used    int `json:"used"`
}

// ConfigDrift: A setting that was in force and is not any more.
type ConfigDrift struct {
	Desired string    `json:"desired"`
	Field   string    `json:"field"`
	Found   string    `json:"found"`
	Setting string    `json:"setting"`
	Since   time.Time `json:"since"`
}

// Forecast: A prediction as lines from the level now to its crossings.
type Forecast struct {
	ETAP10      time.Time  `json:"eta_p10,omitzero"`
	ETAP50      time.Time  `json:"eta_p50,omitzero"`
	ETAP90      time.Time  `json:"eta_p90,omitzero"`
	Limit       Limit      `json:"limit"`
	P10         []*float64 `json:"p10"`
	P50         []*float64 `json:"p50"`
	P90         []*float64 `json:"p90"`
	Prediction  string     `json:"prediction"`
	Probability float64    `json:"probability"`
	Resource    string     `json:"resource"`
	Times       []float64  `json:"times"`
}

// Threshold: as the document has it.
type Threshold struct {
	Bound string  `json:"bound"` // upper_fatal, upper_critical, upper_caution, lower_caution, lower_critical, lower_fatal, range_max, range_min
	Value float64 `json:"value"`
}
