// The pages on which the fleet is managed, in a file of their own: nobody opens them first when something is wrong.
export { ActionsPage } from './actions.js';
export { AgentsPage } from './agents.js';
export { AllocationsPage } from './allocations.js';
export { InventoryPage } from './inventory.js';
