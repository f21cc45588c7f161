package slurm

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// Versions of the data parser that the interface answers to.
var versions = []string{"v0.0.40", "v0.0.41", "v0.0.42"}

// TokenHeader carries the token of a request, as slurmrestd wants it.
const TokenHeader = "X-SLURM-USER-TOKEN"

type number struct {
	Set      bool  `json:"set"`
	Infinite bool  `json:"infinite"`
	Number   int64 `json:"number"`
}

func num(n int64) number { return number{Set: true, Number: n} }

func unix(t time.Time) number {
	if t.IsZero() {
		return number{Set: true}
	}
	return num(t.Unix())
}

type exitCode struct {
	Status     []string `json:"status"`
	ReturnCode number   `json:"return_code"`
	Signal     struct {
		ID   number `json:"id"`
		Name string `json:"name"`
	} `json:"signal"`
}

type jobJSON struct {
	JobID       uint32   `json:"job_id"`
	Name        string   `json:"name"`
	UserName    string   `json:"user_name"`
	UserID      int      `json:"user_id"`
	GroupName   string   `json:"group_name"`
	Account     string   `json:"account"`
	Cluster     string   `json:"cluster"`
	Partition   string   `json:"partition"`
	JobState    []string `json:"job_state"`
	StateReason string   `json:"state_reason"`
	Nodes       string   `json:"nodes"`
	BatchHost   string   `json:"batch_host"`
	NodeCount   number   `json:"node_count"`
	CPUs        number   `json:"cpus"`
	Tasks       number   `json:"tasks"`
	SubmitTime  number   `json:"submit_time"`
	StartTime   number   `json:"start_time"`
	EndTime     number   `json:"end_time"`
	TimeLimit   number   `json:"time_limit"`
	ExitCode    exitCode `json:"exit_code"`
	GresDetail  []string `json:"gres_detail"`
	TresAlloc   string   `json:"tres_alloc_str"`
	TresPerNode string   `json:"tres_per_node"`
	Command     string   `json:"command"`
	WorkDir     string   `json:"current_working_directory"`
}

type nodeJSON struct {
	Name            string   `json:"name"`
	Hostname        string   `json:"hostname"`
	Address         string   `json:"address"`
	State           []string `json:"state"`
	Reason          string   `json:"reason"`
	ReasonChangedAt number   `json:"reason_changed_at"`
	ReasonSetByUser string   `json:"reason_set_by_user"`
	Partitions      []string `json:"partitions"`
	Gres            string   `json:"gres"`
	GresUsed        string   `json:"gres_used"`
	CPUs            int      `json:"cpus"`
	AllocCPUs       int      `json:"alloc_cpus"`
	RealMemory      int64    `json:"real_memory"`
	BootTime        number   `json:"boot_time"`
	SlurmdStart     number   `json:"slurmd_start_time"`
	Architecture    string   `json:"architecture"`
	OperatingSystem string   `json:"operating_system"`
	Version         string   `json:"version"`
}

type restError struct {
	Description string `json:"description"`
	ErrorNumber int    `json:"error_number"`
	Error       string `json:"error"`
	Source      string `json:"source"`
}

type answer map[string]any

// Handler returns the REST interface.
func (c *Controller) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi", c.openapi)
	mux.HandleFunc("GET /openapi/v3", c.openapi)
	for _, v := range versions {
		base := "/slurm/" + v
		mux.HandleFunc("GET "+base+"/ping", c.ping)
		mux.HandleFunc("GET "+base+"/ping/{$}", c.ping)
		mux.HandleFunc("GET "+base+"/jobs", c.getJobs)
		mux.HandleFunc("GET "+base+"/jobs/{$}", c.getJobs)
		mux.HandleFunc("GET "+base+"/job/{id}", c.getJob)
		mux.HandleFunc("DELETE "+base+"/job/{id}", c.deleteJob)
		mux.HandleFunc("GET "+base+"/nodes", c.getNodes)
		mux.HandleFunc("GET "+base+"/nodes/{$}", c.getNodes)
		mux.HandleFunc("GET "+base+"/node/{name}", c.getNode)
		mux.HandleFunc("GET "+base+"/reservations", c.getReservations)
		mux.HandleFunc("GET "+base+"/reservations/{$}", c.getReservations)
		mux.HandleFunc("POST "+base+"/node/{name}", c.postNode)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(TokenHeader)
		if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token == "" {
			token = bearer
		}
		switch {
		case token == "":
			http.Error(w, "Authentication failure", http.StatusUnauthorized)
		case subtle.ConstantTimeCompare([]byte(token), []byte(c.token)) != 1:
			c.reply(w, r, http.StatusNetworkAuthenticationRequired, answer{}, restError{
				Description: "Failure to connect to the controller", ErrorNumber: 1007, Error: "Protocol authentication error", Source: "slurm_auth",
			})
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func (c *Controller) reply(w http.ResponseWriter, r *http.Request, status int, body answer, errs ...restError) {
	body["errors"] = append([]restError{}, errs...)
	body["warnings"] = []restError{}
	version := versions[len(versions)-1]
	if p := strings.Split(r.URL.Path, "/"); len(p) > 2 && slices.Contains(versions, p[2]) {
		version = p[2]
	}
	body["meta"] = answer{
		"plugin": answer{"type": "openapi/slurmctld", "name": "Slurm OpenAPI slurmctld", "data_parser": "data_parser/" + version},
		"client": answer{"source": "[" + r.RemoteAddr + "]", "user": "root", "group": "root"},
		"slurm":  answer{"version": answer{"major": "24", "micro": "5", "minor": "11"}, "release": "24.11.5", "cluster": "auspex-sim"},
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (c *Controller) openapi(w http.ResponseWriter, _ *http.Request) {
	paths := answer{}
	for _, v := range versions {
		for _, p := range []struct{ path, methods string }{
			{"ping/", "get"},
			{"jobs/", "get"},
			{"job/{job_id}", "get delete"},
			{"nodes/", "get"},
			{"node/{node_name}", "get post"},
			{"reservations/", "get"},
		} {
			methods := answer{}
			for m := range strings.FieldsSeq(p.methods) {
				methods[m] = answer{"responses": answer{"default": answer{"description": "answer"}}}
			}
			paths["/slurm/"+v+"/"+p.path] = methods
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer{
		"openapi": "3.0.3", "info": answer{"title": "Slurm REST API", "version": "Slurm-24.11.5&openapi/slurmctld"}, "paths": paths,
	})
}

func (c *Controller) ping(w http.ResponseWriter, r *http.Request) {
	c.reply(w, r, http.StatusOK, answer{
		"pings": []answer{{"hostname": "slurmctl", "pinged": "UP", "responding": true, "latency": 210, "mode": "primary", "primary": true}},
	})
}

func (c *Controller) render(j *Job) jobJSON {
	v := jobJSON{
		JobID: j.ID, Name: j.Name, UserName: j.User, UserID: 2000 + len(j.User), GroupName: j.Account, Account: j.Account, Cluster: "auspex-sim",
		Partition: "gpu",
		JobState:  []string{j.State}, StateReason: j.Reason, Nodes: Hostlist(j.Nodes), NodeCount: num(int64(j.size)),
		CPUs: num(int64(j.size) * 112), Tasks: num(int64(j.size) * int64(max(1, len(j.GPUs)))),
		SubmitTime: unix(j.Submit), StartTime: unix(j.Start), EndTime: unix(j.End), TimeLimit: num(int64(48 * 60)), GresDetail: []string{},
		TresPerNode: fmt.Sprintf("gres/gpu:%d", c.fleet.Config().GPUs), Command: "/home/" + j.User + "/" + j.Name + "/train.sh",
		WorkDir: "/home/" + j.User + "/" + j.Name,
	}
	if len(j.Nodes) > 0 {
		v.BatchHost = j.Nodes[0]
		v.TresAlloc = fmt.Sprintf("cpu=%d,node=%d,gres/gpu=%d", len(j.Nodes)*112, len(j.Nodes), len(j.Nodes)*len(j.GPUs))
		if j.End.IsZero() {
			v.EndTime = unix(j.Start.Add(48 * time.Hour)) // the limit, while it runs
		}
		for range j.Nodes {
			v.GresDetail = append(v.GresDetail, fmt.Sprintf("gpu:h100:%d(IDX:%s)", len(j.GPUs), indexes(j.GPUs)))
		}
	}
	v.ExitCode.ReturnCode, v.ExitCode.Status = num(int64(j.Exit)), []string{"SUCCESS"}
	switch {
	case j.State == Pending || j.State == Running:
		v.ExitCode.Status = []string{"PENDING"}
	case j.Signal != 0:
		v.ExitCode.Status = []string{"SIGNALED"}
		v.ExitCode.Signal.ID, v.ExitCode.Signal.Name = num(int64(j.Signal)), signalName(j.Signal)
	case j.Exit != 0 || j.State == Failed || j.State == NodeFail:
		v.ExitCode.Status = []string{"ERROR"}
	}
	return v
}

func signalName(n int) string {
	switch n {
	case 6:
		return "ABRT"
	case 9:
		return "KILL"
	case 11:
		return "SEGV"
	case 15:
		return "TERM"
	}
	return strconv.Itoa(n)
}

func (c *Controller) getJobs(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	out := make([]jobJSON, 0, len(c.jobs))
	for _, j := range c.jobs {
		out = append(out, c.render(j))
	}
	now := c.now
	c.mu.Unlock()
	c.reply(w, r, http.StatusOK, answer{"jobs": out, "last_update": unix(now), "last_backfill": unix(now)})
}

func (c *Controller) getJob(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	c.mu.Lock()
	var out []jobJSON
	for _, j := range c.jobs {
		if err == nil && uint64(j.ID) == id {
			out = append(out, c.render(j))
		}
	}
	c.mu.Unlock()
	if out == nil {
		c.reply(w, r, http.StatusInternalServerError, answer{"jobs": []jobJSON{}}, restError{
			Description: "Unable to query JobId=" + r.PathValue("id"), ErrorNumber: 2017, Error: "Invalid job id specified",
			Source: "_handle_job_get",
		})
		return
	}
	c.reply(w, r, http.StatusOK, answer{"jobs": out})
}

func (c *Controller) deleteJob(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	found := false
	c.mu.Lock()
	for _, j := range slices.Clone(c.jobs) {
		if err == nil && uint64(j.ID) == id && j.State == Running {
			c.finish(j, Cancelled, 0, 15)
			found = true
		}
	}
	c.mu.Unlock()
	if !found {
		c.reply(w, r, http.StatusInternalServerError, answer{}, restError{
			Description: "Unable to cancel JobId=" + r.PathValue("id"), ErrorNumber: 2017, Error: "Invalid job id specified",
			Source: "slurm_kill_job2",
		})
		return
	}
	c.reply(w, r, http.StatusOK, answer{"status": []answer{}})
}

// state returns what Slurm calls the state of a node: a base state and flags.
func (n *node) state() []string {
	base := "IDLE"
	switch busy := n.busy(); {
	case n.down || n.forced:
		base = "DOWN"
	case busy == len(n.used) && busy > 0:
		base = "ALLOCATED"
	case busy > 0:
		base = "MIXED"
	}
	out := []string{base}
	if n.drain {
		out = append(out, "DRAIN")
	}
	if !n.up {
		out = append(out, "NOT_RESPONDING")
	}
	return out
}

func (c *Controller) renderNode(n *node) nodeJSON {
	return nodeJSON{
		Name: n.name, Hostname: n.name, Address: n.name, State: n.state(), Reason: n.reason, ReasonChangedAt: unix(n.changed),
		ReasonSetByUser: "root",
		Partitions:      []string{"gpu"}, Gres: fmt.Sprintf("gpu:h100:%d", len(n.used)), GresUsed: fmt.Sprintf("gpu:h100:%d", n.busy()),
		CPUs: 112, AllocCPUs: n.busy() * 112 / max(1, len(n.used)), RealMemory: 2063000, BootTime: unix(n.boot), SlurmdStart: unix(n.boot),
		Architecture: "x86_64", OperatingSystem: "Linux 6.8.0-1029-nvidia", Version: "24.11.5",
	}
}

func (c *Controller) getNodes(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	out := make([]nodeJSON, 0, len(c.nodes))
	for _, n := range c.nodes {
		out = append(out, c.renderNode(n))
	}
	now := c.now
	c.mu.Unlock()
	c.reply(w, r, http.StatusOK, answer{"nodes": out, "last_update": unix(now)})
}

func (c *Controller) getNode(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	var out []nodeJSON
	name := r.PathValue("name")
	if n, ok := c.byName[name]; ok {
		out = append(out, c.renderNode(n))
	}
	now := c.now
	c.mu.Unlock()
	if out == nil { // as 24.11 says it
		c.reply(w, r, http.StatusOK, answer{}, restError{Description: "Failure to query node " + name, Error: "No error", Source: "_dump_nodes"})
		return
	}
	c.reply(w, r, http.StatusOK, answer{"nodes": out, "last_update": unix(now)})
}

// getReservations lists none: nobody reserves anything here.
func (c *Controller) getReservations(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	now := c.now
	c.mu.Unlock()
	c.reply(w, r, http.StatusOK, answer{"reservations": []any{}, "last_update": unix(now)})
}

// words is a list of strings that clients also send as one string.
type words []string

// UnmarshalJSON takes a string or an array of strings.
func (l *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

func (c *Controller) postNode(w http.ResponseWriter, r *http.Request) {
	var body struct {
		State  words   `json:"state"`
		Reason *string `json:"reason"`
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		c.reply(
			w, r, http.StatusBadRequest, answer{},
			restError{Description: "Unable to parse the body", ErrorNumber: 9206, Error: err.Error(), Source: "parse"},
		)
		return
	}
	if err := c.Update(r.PathValue("name"), body.State, body.Reason); err != nil {
		c.reply(w, r, http.StatusInternalServerError, answer{}, restError{
			Description: "Failure to update node " + r.PathValue("name"), ErrorNumber: 2018, Error: sentence(err), Source: "slurm_update_node",
		})
		return
	}
	c.reply(w, r, http.StatusOK, answer{})
}

// What Slurm says to an update that it refuses (slurm_errno.c).
var (
	errNode  = errors.New("invalid node name specified")
	errState = errors.New("invalid node state specified")
)

// sentence writes an error as Slurm does.
func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// Update changes a node as `scontrol update node` does. A reason that is nil
// stays as it is.
func (c *Controller) Update(name string, states []string, reason *string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.byName[name]
	if !ok {
		return errNode
	}
	for _, s := range states {
		switch strings.ToUpper(s) {
		case "DRAIN":
			n.drain = true
		case "RESUME", "IDLE":
			n.drain, n.forced = false, false
		case "UNDRAIN":
			n.drain = false
		case "DOWN":
			n.forced = true
			for _, j := range slices.Clone(c.jobs) {
				if j.State == Running && slices.Contains(j.Nodes, name) {
					c.finish(j, NodeFail, 0, 0)
				}
			}
		default:
			return fmt.Errorf("%w: %s", errState, s)
		}
	}
	if reason != nil {
		n.reason = *reason
	}
	n.changed = c.now
	c.noteNode(n)
	return nil
}

func (c *Controller) noteNode(n *node) {
	c.led.Write(ledger.Entry{
		Time: c.now, Kind: ledger.KindNode, Device: n.name, Protocol: "slurm", Type: schemas.EventNodeState, Code: strings.Join(n.state(), "+"),
		Message: n.reason,
	})
}

func indexes(g []int) string {
	if len(g) == 0 {
		return ""
	}
	if len(g) > 1 && g[len(g)-1]-g[0] == len(g)-1 {
		return fmt.Sprintf("%d-%d", g[0], g[len(g)-1])
	}
	var b []string
	for _, i := range g {
		b = append(b, strconv.Itoa(i))
	}
	return strings.Join(b, ",")
}

var tail = regexp.MustCompile(`^(.*?)(\d+)$`)

// Hostlist writes names as Slurm does: those that differ in their last number
// only are folded, as in gpu-r01-[01-04,07].
func Hostlist(names []string) string {
	var out []string
	for i := 0; i < len(names); {
		m := tail.FindStringSubmatch(names[i])
		if m == nil {
			out = append(out, names[i])
			i++
			continue
		}
		var ranges []string
		group := 0
		for i < len(names) {
			k := tail.FindStringSubmatch(names[i])
			if k == nil || k[1] != m[1] || len(k[2]) != len(m[2]) {
				break
			}
			first, _ := strconv.Atoi(k[2])
			last, from := first, k[2]
			to := from
			i++
			group++
			for i < len(names) {
				k = tail.FindStringSubmatch(names[i])
				if k == nil || k[1] != m[1] || len(k[2]) != len(m[2]) {
					break
				}
				if v, _ := strconv.Atoi(k[2]); v != last+1 {
					break
				}
				last, to = last+1, k[2]
				i++
				group++
			}
			if from == to {
				ranges = append(ranges, from)
			} else {
				ranges = append(ranges, from+"-"+to)
			}
		}
		if group == 1 {
			out = append(out, m[1]+ranges[0])
		} else {
			out = append(out, m[1]+"["+strings.Join(ranges, ",")+"]")
		}
	}
	return strings.Join(out, ",")
}
