package client

import (
	"context"
	"time"

	"auspex/schemas"
)

// every is how long is waited between two looks at what is being done.
const every = time.Second

// follow looks at something until it has ended.
func follow[T any](ctx context.Context, get func(context.Context) (T, error), ended func(*T) bool) (T, error) {
	for {
		v, err := get(ctx)
		if err != nil || ended(&v) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(every):
		}
	}
}

// FollowOperation follows what [Client.PowerServer] and others have begun until it is done; its state says how it ended.
func (c *Client) FollowOperation(ctx context.Context, id string) (Operation, error) {
	return follow(ctx, func(ctx context.Context) (Operation, error) { return c.GetOperation(ctx, id) }, func(o *Operation) bool { return o.Done })
}

// FollowWorkflow follows a workflow until it is completed or has failed.
func (c *Client) FollowWorkflow(ctx context.Context, id string) (schemas.Workflow, error) {
	return follow(ctx, func(ctx context.Context) (schemas.Workflow, error) { return c.GetWorkflow(ctx, id) }, func(w *schemas.Workflow) bool {
		return w.Status == schemas.WorkflowCompleted || w.Status == schemas.WorkflowFailed
	})
}

// FollowAllocation follows an allocation until it is no longer pending: active, or failed.
func (c *Client) FollowAllocation(ctx context.Context, id string) (schemas.Allocation, error) {
	return follow(ctx, func(ctx context.Context) (schemas.Allocation, error) { return c.GetAllocation(ctx, id) }, func(a *schemas.Allocation) bool {
		return a.Status != schemas.AllocationPending
	})
}
