package kernlog

import (
	"strings"
	"time"

	"auspex/schemas"
)

const imexUnit = "nvidia-imex"

// Codes of [schemas.EventIMEXDomain].
const (
	imexPeerLost = "peer_lost"
	imexDegraded = "degraded"
	imexDown     = "down"
)

// IMEX parses a line of /var/log/nvidia-imex.log, such as
// "[Mar 27 2025 15:47:10] [INFO] [tid 67] Connection established to node 3 with ip address
// 10.115.131.8. Number of times connected: 2". The daemon ends where it cannot begin: its
// errors until then are those of a service that failed. What it says of other nodes is of its
// NVLink domain, and what it says of one ends when it is connected again; also where this parser is
// newer than the daemon and has not heard how it began.
// NVIDIA documents none of its messages, and words them anew; so they are read by what they say,
// and an error that says nothing known is one of the service all the same, as a warning.
func (p *Parser) IMEX(line string, zone *time.Location) (ev schemas.Event, t time.Time, ok bool) {
	level, text, t := serviceLine(line, zone)
	low := strings.ToLower(text)
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
		}
		return false
	}
	grave := level == "ERROR" || level == "CRITICAL" || level == "FATAL"
	peer := peerOf(low)
	domain := says("domain")
	switch {
	case says("connection established to node") && peer != "":
		lost, seen := p.peers[peer]
		first := digitsOf(after(low, "number of times connected: ")) == "1"
		p.peer(peer, false)
		if seen && !lost || !seen && first { // nothing was said of it that would end
			return schemas.Event{}, t, false
		}
		ev, _ = event(schemas.EventIMEXDomain, imexPeerLost, schemas.SeverityInfo, "peer", peer, "address", after(low, "ip address "))
		ev.State = schemas.StateCleared
	case !grave && level != "WARNING":
		return schemas.Event{}, t, false
	case peer != "" && says("disconnect", "lost", "reachable", "timed out", "timeout", "failed to connect", "is down", "unavailable", "left the"):
		ev, _ = event(schemas.EventIMEXDomain, imexPeerLost, schemas.SeverityWarning, "peer", peer, "address", after(low, "ip address "))
		ev.State = schemas.StateRaised
		p.peer(peer, true)
	case domain && says("degraded"):
		ev, _ = event(schemas.EventIMEXDomain, imexDegraded, schemas.SeverityWarning)
	case domain && says("unavailable", " down"):
		ev, _ = event(schemas.EventIMEXDomain, imexDown, schemas.SeverityError)
	case !grave:
		return schemas.Event{}, t, false
	case says("version") && says("not match", "mismatch", "incompatible", "not compatible"):
		ev, _ = event(schemas.EventServiceFailed, imexUnit, schemas.SeverityError, "reason", "version_mismatch")
	case level != "ERROR", says("no matching network interface", "initializ", "initialis", "failed to start", "abort", "exiting", "terminat"):
		ev, _ = event(schemas.EventServiceFailed, imexUnit, schemas.SeverityError, "reason", "initialization")
	default:
		ev, _ = event(schemas.EventServiceFailed, imexUnit, schemas.SeverityWarning, "reason", "error")
	}
	ev.Source, ev.Message = schemas.SourceKmsg, line
	ev.SetAttr("action", defaultAction(&ev))
	return ev, t, true
}

// maxPeers bounds the nodes of a domain that are remembered.
const maxPeers = 1024

func (p *Parser) peer(name string, lost bool) {
	if p.peers == nil {
		p.peers = map[string]bool{}
	}
	if _, known := p.peers[name]; known || len(p.peers) < maxPeers {
		p.peers[name] = lost
	}
}

// peerOf is the node of which a line speaks, in lower case, by its number in the daemon's list of nodes.
func peerOf(low string) string {
	for rest := low; ; {
		_, tail, found := strings.Cut(rest, "node ")
		if !found {
			return ""
		}
		number := digitsOf(strings.TrimLeft(tail, "#id: "))
		if number != "" {
			return "node" + number
		}
		rest = tail
	}
}

// after is the word behind some others, without the end of its sentence.
func after(text, words string) string {
	_, rest, _ := strings.Cut(text, words)
	return strings.TrimRight(firstWord(rest), ".,;")
}

// serviceLine takes a line of a log of NVIDIA's services apart: "[Jul 23 2024 07:53:55] [ERROR]
// [tid 841] text", whose times are those of the host's zone. A line without a time gives the zero time.
func serviceLine(line string, zone *time.Location) (level, text string, t time.Time) {
	text = line
	for strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			break
		}
		field := text[1:end]
		if at, err := fabricTime(field, zone); err == nil {
			t = at
		} else if !strings.HasPrefix(field, "tid ") {
			level = strings.ToUpper(field)
		}
		text = strings.TrimSpace(text[end+1:])
	}
	return level, text, t
}
