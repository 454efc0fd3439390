// One store of state. Whatever a person sees is a function of it; whoever changes it calls `set`, and one subscriber draws.

/**
 * @template {object} State
 * @param {State} initial
 */
export function createStore(initial) {
  let state = initial;
  /** @type {Set<(state: State, before: State) => void>} */
  const listeners = new Set();
  return {
    /** @returns {State} */
    get: () => state,
    /** @param {Partial<State> | ((state: State) => Partial<State>)} change */
    set(change) {
      const before = state;
      state = { ...state, ...(typeof change === "function" ? change(state) : change) };
      for (const listener of listeners) listener(state, before);
    },
    /** @param {(state: State, before: State) => void} listener */
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
