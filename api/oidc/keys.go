package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"
)

// keySet are the keys that a login service signs with. They are fetched for a key that is not
// known, at most once in a while, since anybody can name one; and anew after an hour, since one
// that was withdrawn must not work for ever.
type keySet struct {
	url    string
	http   *http.Client
	now    func() time.Time
	failed func()

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // the last that came
	tried   time.Time
	pending chan struct{} // closed when the keys that are fetched now are here
}

const (
	keysLast  = time.Hour
	keysAgain = 5 * time.Second
)

var errKeys = errors.New("the keys of the login service cannot be read")

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, jws *jose.JSONWebSignature) ([]byte, error) {
	id, alg := zoidc.GetKeyIDAndAlg(jws)
	for again := true; ; again = false {
		k.mu.Lock()
		keys, fresh := k.keys, k.now().Sub(k.fetched) < keysLast
		k.mu.Unlock()
		if fresh {
			if key, err := zoidc.FindMatchingKey(id, zoidc.KeyUseSignature, alg, keys...); err == nil {
				return jws.Verify(&key)
			} else if !again {
				return nil, err
			}
		} else if !again {
			return nil, errKeys
		}
		if err := k.fetch(ctx); err != nil {
			return nil, err
		}
	}
}

// fetch waits for the keys of now; a caller who leaves ends nothing that others wait for.
func (k *keySet) fetch(ctx context.Context) error {
	k.mu.Lock()
	if k.pending == nil && k.now().Sub(k.tried) >= keysAgain {
		k.tried, k.pending = k.now(), make(chan struct{})
		go k.load(k.pending)
	}
	pending := k.pending
	k.mu.Unlock()
	if pending == nil {
		return nil // just asked
	}
	select {
	case <-pending:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *keySet) load(pending chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var set struct{ Keys []json.RawMessage }
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, http.NoBody)
	if err == nil {
		err = fetch(k.http, r, &set)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.IsPublic() { // of a kind that is not known, none
			keys = append(keys, key)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && len(keys) > 0 {
		k.keys, k.fetched = keys, k.now()
	} else {
		k.failed()
	}
	k.pending = nil
	close(pending)
}

// fetch reads the JSON of an answer.
func fetch(c *http.Client, r *http.Request, into any) error {
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %d", res.StatusCode)
	}
	return json.NewDecoder(res.Body).Decode(into)
}
