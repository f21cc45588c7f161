package notices

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"auspex/internal/store/hooks"
	"auspex/schemas"
)

// event is a notice as a CloudEvent (CloudEvents 1.0.2, section 3; JSON format, section 3).
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	UserID          string          `json:"userid,omitempty"` // extensions have letters and digits alone
	TeamID          string          `json:"teamid,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// typePrefix makes a type of ours one that is nobody else's (CloudEvents, "type").
const typePrefix = "auspex."

func body(source string, n *schemas.Notice) ([]byte, error) {
	return json.Marshal(event{
		SpecVersion: "1.0", ID: n.ID, Source: source, Type: typePrefix + n.Type, Subject: n.Subject, Time: n.Time,
		DataContentType: "application/json", UserID: n.User, TeamID: n.Team, Data: n.Data,
	})
}

// sign makes the header webhook-signature (Standard Webhooks, "Signature scheme").
func sign(key []byte, id, timestamp string, payload []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(payload)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// request is one attempt.
func request(ctx context.Context, source string, a *hooks.Attempt, now time.Time) (*http.Request, error) {
	key, err := hooks.Key(a.Secret)
	if err != nil {
		return nil, errors.New("its secret cannot be read") // what is stored is never repeated
	}
	payload, err := body(source, &a.Notice)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(payload))
	if err != nil {
		return nil, errors.New("its address cannot be read")
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	r.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	r.Header.Set("User-Agent", "auspex")
	r.Header.Set("Webhook-Id", a.Notice.ID)
	r.Header.Set("Webhook-Timestamp", timestamp)
	r.Header.Set("Webhook-Signature", sign(key, a.Notice.ID, timestamp, payload))
	return r, nil
}

// refused are addresses that no receiver has: what clouds tell machines about themselves is
// among them.
func refused(ip netip.Addr) bool {
	return !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == awsIPv6
}

var awsIPv6 = netip.MustParseAddr("fd00:ec2::254")

// control looks at the address that a name has become, right before it is dialled.
func control(plain bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return errors.New("no address")
		}
		ip := at.Addr().WithZone("").Unmap()
		if refused(ip) {
			return fmt.Errorf("nothing is sent to %s: it is link-local, multicast or nobody's", ip)
		}
		if plain && !ip.IsLoopback() {
			return fmt.Errorf("nothing is sent in the clear to %s: it is not this machine", ip)
		}
		return nil
	}
}

// client sends to receivers; plain is for http, to this machine alone. It asks no proxy and
// follows no redirect.
func client(cfg Config, plain bool) *http.Client {
	dial := &net.Dialer{Timeout: cfg.Timeout, Control: control(plain)}
	return &http.Client{
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dial.DialContext, TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true, TLSHandshakeTimeout: cfg.Timeout,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 1, MaxIdleConns: 100, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
	}
}

// why is an error without the address that was asked.
func why(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		if u.Timeout() {
			return "no answer in time"
		}
		return u.Err.Error()
	}
	return err.Error()
}
