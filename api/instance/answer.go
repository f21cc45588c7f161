package instance

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/limit"
	"auspex/schemas"
)

// What was asked for.
const (
	pathMetadata = "meta-data"
	pathUserData = "user-data"
	pathSession  = "token"
	pathWipe     = "wipe"
	pathUnknown  = "unknown" // it did not come to that
)

// What came of it.
const (
	resultAnswered  = "answered"
	resultUnknown   = "unknown"   // the address is no server's, or of several
	resultToken     = "token"     // the token is no server's, or the session's is over
	resultForwarded = "forwarded" // by somebody who is no proxy of ours
	resultFlood     = "flood"     // more requests than are taken of one source
	resultAbsent    = "absent"    // there is nothing at that path
	resultSecret    = "secret"    // its user data refers to a secret that cannot be handed out
	resultFailed    = "failed"    // the stores did not answer
	resultRefused   = "refused"   // a report of drives that nobody can have found
)

// Headers of session tokens (EC2 user guide, "Use the Instance Metadata Service", IMDSv2).
const (
	sessionHeader  = "X-Aws-Ec2-Metadata-Token"
	lifetimeHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxLifetime    = 21600 // seconds
)

// tokenPath is before the path of those who show their token there: an EC2 data source is given an
// address and no header.
const tokenPath = "/t/"

// versions of EC2's metadata that are served. cloud-init asks for 2009-04-04 where no later one is.
var versions = []string{"2009-04-04", "latest"}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if s.wipe(w, r) {
		return
	}
	record, how, path, refusal := s.caller(r)
	if refusal != "" {
		s.refuse(w, pathUnknown, refusal)
		return
	}
	if r.Method == http.MethodPut && path == "/latest/api/token" {
		s.session(w, r, &record)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.count(pathUnknown, resultAbsent)
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	if given := r.Header.Get(sessionHeader); given != "" && !s.holds(given, record.ID) {
		s.refuse(w, pathSession, resultToken)
		return
	}
	if path == "/metadata" {
		s.say(w, pathMetadata, "application/json", hegel(&record))
		return
	}
	version, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case version == "":
		s.say(w, pathMetadata, "", strings.Join(versions, "\n"))
	case !slices.Contains(versions, version):
		s.refuse(w, pathMetadata, resultAbsent)
	case strings.TrimSuffix(rest, "/") == pathUserData:
		s.userData(w, r, &record, how)
	default:
		text, ok := lookUp(ec2(&record), rest)
		if !ok {
			s.refuse(w, pathMetadata, resultAbsent)
			return
		}
		s.say(w, pathMetadata, "", text)
	}
}

func (s *Server) count(path, result string) { s.asked.WithLabelValues(path, result).Inc() }

func (s *Server) say(w http.ResponseWriter, path, kind, text string) {
	s.count(path, resultAnswered)
	w.Header().Set("Content-Type", cmp.Or(kind, "text/plain; charset=utf-8"))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write([]byte(text)) // who went away gets nothing
}

// refuse says no more than the code does.
func (s *Server) refuse(w http.ResponseWriter, path, result string) {
	s.count(path, result)
	code := http.StatusNotFound
	switch result {
	case resultToken:
		code = http.StatusUnauthorized
	case resultFlood:
		w.Header().Set("Retry-After", strconv.Itoa(burst))
		code = http.StatusTooManyRequests
	case resultSecret, resultFailed:
		code = http.StatusServiceUnavailable
	}
	http.Error(w, http.StatusText(code), code)
}

// source is the address of who asks, through our proxies where there are some.
func (s *Server) source(r *http.Request) (a netip.Addr, ok bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return a, false
	}
	a = at.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	if !s.trusted(a) { // who forwards for others is not the server that asks
		return a, hops[0] == "" && r.Header.Get("Forwarded") == ""
	}
	for _, hop := range slices.Backward(hops) {
		if a, err = netip.ParseAddr(strings.TrimSpace(hop)); err != nil {
			return a, false
		}
		if a = a.Unmap().WithZone(""); !s.trusted(a) {
			return a, true
		}
	}
	return a, false
}

// caller is the server that asks, how it is known, and the path that it asks for; or why nobody is.
func (s *Server) caller(r *http.Request) (record schemas.HardwareRecord, how, path, refusal string) {
	from, plain := s.source(r)
	if ok, _ := s.rate.Allow(limit.Source(from), s.deps.Now()); !ok {
		return record, "", "", resultFlood
	}
	if !plain {
		return record, "", "", resultForwarded
	}
	secret, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	path = r.URL.Path
	if rest, ok := strings.CutPrefix(path, tokenPath); ok {
		secret, path, _ = strings.Cut(rest, "/")
		path, given = "/"+path, true
	}
	var err error
	switch {
	case given:
		how, refusal = "by its token from "+from.String(), resultToken
		record, err = s.deps.Records.Bearer(r.Context(), secret)
	case s.cfg.ByAddress:
		how, refusal = "from "+from.String(), resultUnknown
		record, err = s.deps.Records.At(r.Context(), from)
	default:
		return record, "", "", resultUnknown
	}
	switch {
	case err == nil:
		return record, how, path, ""
	case errors.Is(err, ErrUnknown):
		return record, "", "", refusal
	}
	s.deps.Log.Warn("cannot tell which server asks for its metadata", "error", err)
	return record, "", "", resultFailed
}

// session answers with a session token of the length that is asked for.
func (s *Server) session(w http.ResponseWriter, r *http.Request, record *schemas.HardwareRecord) {
	seconds, err := strconv.Atoi(r.Header.Get(lifetimeHeader))
	if err != nil || seconds < 1 || seconds > maxLifetime {
		s.count(pathSession, resultAbsent)
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	w.Header().Set(lifetimeHeader, strconv.Itoa(seconds))
	s.say(w, pathSession, "", s.sign(record.ID, s.deps.Now().Add(time.Duration(seconds)*time.Second)))
}

// sign makes a session token: until when it holds, and a mark that only this process can make.
func (s *Server) sign(server string, until time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(until.Unix())) //nolint:gosec // long after 1970
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(b)
	mac.Write([]byte(server))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(b))
}

// holds reports whether a session token is a server's and not over.
func (s *Server) holds(token, server string) bool {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 8 {
		return false
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(b)), 0) //nolint:gosec // what does not fit is over
	return hmac.Equal([]byte(s.sign(server, until)), []byte(token)) && s.deps.Now().Before(until)
}

// ec2 are the leaves of the tree below a version.
func ec2(r *schemas.HardwareRecord) map[string]string {
	tags := []string{}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata.Labels)) {
		tags = append(tags, k+"="+r.Metadata.Labels[k])
	}
	leaves := map[string]string{
		"instance-id": r.ID, "hostname": r.Metadata.Hostname, "local-hostname": r.Metadata.Hostname, "instance-type": r.Model,
		"placement/availability-zone": r.Metadata.Site, "tags": strings.Join(tags, "\n"),
		"facility": r.Metadata.Site, "plan": r.Model, // as Hegel calls them
	}
	if len(r.Interfaces) > 0 && r.Interfaces[0].Boot {
		leaves["mac"] = r.Interfaces[0].DHCP.MAC
	}
	for i := range r.Interfaces {
		for _, text := range r.Interfaces[i].Addresses {
			name := "ipv6"
			if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
				name = "local-ipv4"
			}
			leaves[name] = cmp.Or(leaves[name], text)
		}
	}
	out := map[string]string{}
	for name, v := range leaves {
		if v != "" {
			out[pathMetadata+"/"+name] = v
		}
	}
	if r.Overrides.UserData != "" {
		out[pathUserData] = ""
	}
	document, _ := json.Marshal(map[string]string{ // of texts alone
		"instanceId": r.ID, "instanceType": r.Model, "architecture": r.Fact(schemas.FactArchitecture), "region": r.Metadata.Site,
		"availabilityZone": r.Metadata.Site, "privateIp": leaves["local-ipv4"], "version": "2017-09-30",
	})
	out["dynamic/instance-identity/document"] = string(document)
	return out
}

// lookUp is a leaf, or what is in a folder, a line each: folders end with a slash, as in EC2.
func lookUp(leaves map[string]string, path string) (text string, ok bool) {
	path = strings.Trim(path, "/")
	if v, leaf := leaves[path]; leaf {
		return v, true
	}
	if path != "" {
		path += "/"
	}
	within := map[string]bool{}
	for name := range leaves {
		if rest, below := strings.CutPrefix(name, path); below {
			first, _, folder := strings.Cut(rest, "/")
			if folder {
				first += "/"
			}
			within[first] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(within)), "\n"), len(within) > 0
}

// hegel is what Tinkerbell's Hegel answers at /metadata, as its actions read it: the metadata of the
// Hardware object (tink v0.12.2, api/v1alpha1, HardwareMetadata).
func hegel(r *schemas.HardwareRecord) string {
	type disk struct {
		Device string `json:"device"`
	}
	type storage struct {
		Disks []disk `json:"disks"`
	}
	type instance struct {
		ID       string   `json:"id"`
		Hostname string   `json:"hostname"`
		Tags     []string `json:"tags"`
		Storage  storage  `json:"storage"`
	}
	type facility struct {
		Code string `json:"facility_code"`
		Plan string `json:"plan_slug"`
	}
	type metadata struct {
		Instance instance `json:"instance"`
		Facility facility `json:"facility"`
	}
	i := instance{ID: r.ID, Hostname: r.Metadata.Hostname, Tags: []string{}, Storage: storage{Disks: []disk{}}}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata.Labels)) {
		i.Tags = append(i.Tags, k+"="+r.Metadata.Labels[k])
	}
	for k := range r.Disks {
		if d := &r.Disks[k]; d.Device != "" && (k > 0 || d.Boot) { // the first is the one to install on, or none is
			i.Storage.Disks = append(i.Storage.Disks, disk{d.Device})
		} else if k == 0 {
			break
		}
	}
	text, _ := json.Marshal(struct { // of texts alone
		Metadata metadata `json:"metadata"`
	}{metadata{i, facility{r.Metadata.Site, r.Model}}})
	return string(text)
}

// userData answers with the user data of a server, secrets filled in, once the audit has it.
func (s *Server) userData(w http.ResponseWriter, r *http.Request, record *schemas.HardwareRecord, how string) {
	if record.Overrides.UserData == "" {
		s.refuse(w, pathUserData, resultAbsent)
		return
	}
	if ok, _ := s.data.Allow(record.ID, s.deps.Now()); !ok {
		s.refuse(w, pathUserData, resultFlood)
		return
	}
	text, err := s.filled(r.Context(), record.Overrides.UserData)
	if err != nil {
		s.deps.Log.Warn("user data of a server cannot be handed out", "server", record.Name, "error", err)
		s.refuse(w, pathUserData, resultSecret)
		return
	}
	if err := s.deps.Read(r.Context(), record.Name, how); err != nil {
		s.deps.Log.Warn("user data of a server is not handed out without the audit", "server", record.Name, "error", err)
		s.refuse(w, pathUserData, resultFailed)
		return
	}
	s.say(w, pathUserData, "", text)
}

// reference is the name of a secret in user data, where no word goes on.
var reference = regexp.MustCompile(`(^|[^A-Za-z0-9_-])secret:([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)`)

// filled is user data with its secrets. Its error has no secret.
func (s *Server) filled(ctx context.Context, text string) (string, error) {
	found := reference.FindAllStringSubmatchIndex(text, -1)
	if len(found) > secretWords {
		return "", fmt.Errorf("it refers to more than %d secrets", secretWords)
	}
	var out strings.Builder
	last := 0
	for _, at := range found {
		name := text[at[4]:at[5]]
		if !slices.Contains(s.cfg.Secrets, name) {
			return "", fmt.Errorf("it refers to secret:%s, which instance_metadata.secrets does not name", name)
		}
		_, password, err := s.deps.Secret(ctx, name)
		if err != nil {
			return "", err
		}
		out.WriteString(text[last:at[3]])
		out.WriteString(password)
		last = at[5]
	}
	out.WriteString(text[last:])
	return out.String(), nil
}
